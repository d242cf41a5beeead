//! What is too large for the store: reports with their logs and the files of designs, each named by the digest of its
//! content.
//!
//! A blob is written before the key that names it is committed, and whoever reads it compares it with its digest: so
//! half a blob is no blob. A report is not synced to disk on its own: after a power cut a log can be missing, and readers
//! say so; the status that names it is never lost. What somebody wrote by hand is ([`Blobs::keep_for_good`]).
//!
//! Several replicas share the directory. What one of them writes now, another must not take for something that was left
//! behind: only what is old is swept.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use muster_core::names::ReplicaId;
use muster_core::release_dir::hex;
use muster_core::report::Report;
use sha2::{Digest, Sha256};

use crate::replica::identity::{host, new_id};
use crate::replica::shared_blobs::Marks;

/// So many characters of a digest are the directory that its blob is in.
const HEAD: usize = 2;
/// How a file is named that is being written.
const UNFINISHED: &str = "unfinished";
/// The file that says which store these blobs belong to.
const STORE: &str = ".store";

/// Up to so many files are synced each for itself.
const FEW: usize = 16;

/// What is younger than this may belong to a report that another replica is about to commit. Far longer than a commit
/// takes, and than clocks of machines that share a directory are apart.
const YOUNG: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub struct Blobs {
    root: PathBuf,
    /// Whose unfinished files are whose.
    replica: ReplicaId,
    counter: AtomicU64,
    written_bytes: AtomicU64,
}

impl Blobs {
    /// Opens the directory, and makes it if it is not there.
    pub fn open(root: &Path, replica: ReplicaId) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        let (counter, written_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { root: root.to_owned(), replica, counter, written_bytes })
    }

    /// Opens the directory for a command that is no server, and writes beside those that are.
    pub fn open_beside_servers(root: &Path) -> io::Result<Self> {
        Self::open(root, new_id(&host()).map_err(io::Error::other)?)
    }

    /// The marks of the replicas that share the directory.
    pub(crate) fn marks(&self) -> Marks {
        Marks::of(&self.root)
    }

    /// A file for something large that is on its way, on the same disk. Nobody else sees it, and it goes with its handle.
    pub fn spool(&self) -> io::Result<std::fs::File> {
        tempfile::tempfile_in(&self.root)
    }

    /// The name of some bytes.
    pub fn digest(bytes: &[u8]) -> String {
        hex(&Sha256::digest(bytes))
    }

    /// Keeps bytes, and says under which digest.
    pub fn put(&self, bytes: &[u8]) -> io::Result<String> {
        let digest = Self::digest(bytes);
        self.keep(&digest, bytes)?;
        Ok(digest)
    }

    /// Keeps bytes whose digest is known.
    pub(crate) fn keep(&self, digest: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(digest);
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        match create(&path) {
            // Nobody looks for it before its key is committed, so it needs no other name until it is whole.
            Ok(file) => finish(file, &path, bytes)?,
            // The same bytes again, or what a killed server has written of them. Somebody may be reading it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let temporary = self.root.join(format!("{}-{number}.{UNFINISHED}", self.replica));
                finish(File::create(&temporary)?, &temporary, bytes)?;
                std::fs::rename(&temporary, &path)?;
            }
            Err(error) => return Err(error),
        }
        self.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Keeps blobs whose digests are known, and returns when a power cut can no longer take them away.
    pub fn keep_for_good<'a>(&self, blobs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> io::Result<()> {
        let mut written = Vec::new();
        for (digest, bytes) in blobs {
            self.keep(digest, bytes)?;
            written.push(self.path(digest));
        }
        if written.len() > FEW {
            // One round over the disk instead of one for each.
            return Ok(rustix::fs::syncfs(File::open(&self.root)?)?);
        }
        // On the file systems that we know, syncing a new file makes its name last too; and of files that are synced side by
        // side they make one commit of their journal.
        let sync = |path: &PathBuf| File::open(path)?.sync_data();
        let Some((first, others)) = written.split_first() else { return Ok(()) };
        thread::scope(|scope| {
            let others: Vec<_> = others.iter().map(|path| scope.spawn(move || sync(path))).collect();
            let first = sync(first);
            let synced = |other: thread::ScopedJoinHandle<'_, io::Result<()>>| {
                other.join().unwrap_or_else(|_| Err(io::Error::other("a thread that syncs a file panicked")))
            };
            others.into_iter().map(synced).fold(first, io::Result::and)
        })
    }

    /// The bytes of a digest; none if they are not there, or are not what the digest says.
    pub fn get(&self, digest: &str) -> Option<Vec<u8>> {
        let legal = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bytes = legal.then(|| std::fs::read(self.path(digest)).ok()).flatten()?;
        (Self::digest(&bytes) == digest).then_some(bytes)
    }

    /// How many blobs were put so far, and their bytes.
    pub fn written(&self) -> (u64, u64) {
        (self.counter.load(Ordering::Relaxed), self.written_bytes.load(Ordering::Relaxed))
    }

    /// The reports of some digests, those that are there.
    pub async fn reports(self: &Arc<Self>, digests: Vec<String>) -> Vec<Report> {
        let blobs = Arc::clone(self);
        let read = move || -> Vec<Report> {
            let texts = digests.iter().filter_map(|digest| blobs.get(digest));
            texts.filter_map(|text| serde_json::from_slice(&text).ok()).collect()
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }

    /// Whether the directory belongs to this store; a directory that belongs to none belongs to it from now on. Another
    /// store knows nothing of what this one needs, and must not sweep it away.
    pub fn belong_to(&self, store: &str) -> io::Result<bool> {
        let path = self.root.join(STORE);
        let owner = match std::fs::read_to_string(&path) {
            Ok(owner) => owner,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        // A server that was killed at the first start may have left the file without its one line.
        if owner.ends_with('\n') {
            return Ok(owner.trim_end() == store);
        }
        std::fs::write(&path, format!("{store}\n"))?;
        Ok(true)
    }

    /// Removes what is old and that nobody needs: reports that were not applied, those of nodes that have left, and what
    /// a killed server has not finished writing. A blob that is put again is a new file, so what a report of now needs
    /// is never old.
    pub fn sweep(&self, now: SystemTime, needed: impl Fn(&str) -> bool) -> io::Result<usize> {
        let before = now.checked_sub(YOUNG).unwrap_or(SystemTime::UNIX_EPOCH);
        let is_old =
            |entry: &std::fs::DirEntry| entry.metadata().and_then(|found| found.modified()).is_ok_and(|at| at < before);
        let mut removed = 0;
        for head in std::fs::read_dir(&self.root)? {
            let head = head?;
            if !head.file_type()?.is_dir() {
                let unfinished = head.path().extension().is_some_and(|extension| extension == UNFINISHED);
                if unfinished && is_old(&head) {
                    std::fs::remove_file(head.path())?;
                }
                continue;
            }
            if head.file_name().len() != HEAD {
                continue;
            }
            for tail in std::fs::read_dir(head.path())? {
                let tail = tail?;
                let digest = format!("{}{}", head.file_name().display(), tail.file_name().display());
                if is_old(&tail) && !needed(&digest) {
                    self.remove(&digest);
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// Forgets a blob that nothing refers to any more. One that is gone already is no error.
    pub fn remove(&self, digest: &str) {
        if let Err(error) = std::fs::remove_file(self.path(digest))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, digest, "a blob cannot be removed");
        }
    }

    fn path(&self, digest: &str) -> PathBuf {
        let (head, tail) = digest.split_at(digest.len().min(HEAD));
        self.root.join(head).join(tail)
    }
}

/// Makes the directory only when it is missing, which is 256 times in the life of a store.
fn create(path: &Path) -> io::Result<File> {
    match (File::create_new(path), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(parent)?;
            File::create_new(path)
        }
        (created, _) => created,
    }
}

/// Fills a file. On a full disk nothing that could not be finished stays behind.
fn finish(mut file: File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = file.write_all(bytes);
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path, replica: &str) -> Blobs {
        Blobs::open(dir, ReplicaId::new(replica).unwrap()).unwrap()
    }

    #[test]
    fn a_sweep_takes_what_is_old_and_not_needed() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = open(dir.path(), "one-1");
        let (needed, orphan) = (blobs.put(b"needed").unwrap(), blobs.put(b"orphan").unwrap());
        let unfinished = dir.path().join("other-2-7.unfinished");
        std::fs::write(&unfinished, b"ha").unwrap();
        let mark = dir.path().join(".replicas").join("other-2");
        std::fs::create_dir(dir.path().join(".replicas")).unwrap();
        std::fs::write(&mark, b"nonce").unwrap();
        let written = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
        let last = written(&blobs.path(&orphan)).max(written(&unfinished));

        assert_eq!(blobs.sweep(last, |_| false).unwrap(), 0, "another replica may have written it just now");
        assert!(unfinished.exists());
        let late = last + YOUNG + Duration::from_secs(1);
        assert_eq!(blobs.sweep(late, |digest| digest == needed).unwrap(), 1);
        assert_eq!((blobs.get(&needed).is_some(), blobs.get(&orphan).is_some()), (true, false));
        assert_eq!((unfinished.exists(), mark.exists()), (false, true));
    }

    #[test]
    fn a_directory_belongs_to_the_store_that_used_it_first() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = open(dir.path(), "one-1");
        assert!(blobs.belong_to("embedded:/state/store").unwrap());
        assert!(!blobs.belong_to("etcd://127.0.0.1:2379").unwrap());
        assert!(open(dir.path(), "two-2").belong_to("embedded:/state/store").unwrap());
        for half in ["", "embedded:/st"] {
            std::fs::write(dir.path().join(STORE), half).unwrap();
            assert!(blobs.belong_to("embedded:/state/store").unwrap(), "whoever wrote {half:?} was killed");
            assert!(!blobs.belong_to("etcd://127.0.0.1:2379").unwrap());
        }
    }

    #[test]
    fn what_was_put_is_got_and_what_was_damaged_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let digest = open(dir.path(), "one-1").put(b"a log").unwrap();
        let blobs = open(dir.path(), "other-2");
        assert_eq!(blobs.put(b"a log").unwrap(), digest);
        assert_eq!(blobs.get(&digest).as_deref(), Some(&b"a log"[..]));
        std::fs::write(blobs.path(&digest), b"another").unwrap();
        assert_eq!(blobs.get(&digest), None);
        assert_eq!(blobs.put(b"a log").unwrap(), digest);
        assert_eq!(blobs.get(&digest).as_deref(), Some(&b"a log"[..]), "what a killed server left is replaced");
        blobs.remove(&digest);
        blobs.remove(&digest);
        assert_eq!(blobs.get(&digest), None);
        assert_eq!(blobs.get("../../etc/passwd"), None);
    }
}
