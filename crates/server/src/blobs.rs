//! What is too large for the store: reports with their logs, each a file named by the digest of its content.
//!
//! A blob is written whole and then renamed into place, before the key that names it is committed. It is not synced to
//! disk on its own: after a power cut a log can be missing, and readers say so; the status that names it is never lost.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use muster_core::release_dir::hex;
use muster_core::report::Report;
use sha2::{Digest, Sha256};

/// How a file is named that is being written.
const UNFINISHED: &str = "unfinished";

#[derive(Debug)]
pub struct Blobs {
    root: PathBuf,
    counter: AtomicU64,
    written_bytes: AtomicU64,
}

impl Blobs {
    /// Opens the directory, and makes it if it is not there. What a killed server has not finished writing goes.
    pub fn open(root: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        for entry in std::fs::read_dir(root)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == UNFINISHED) {
                std::fs::remove_file(path)?;
            }
        }
        Ok(Self { root: root.to_owned(), counter: AtomicU64::new(0), written_bytes: AtomicU64::new(0) })
    }

    /// Keeps bytes, and says under which digest.
    pub fn put(&self, bytes: &[u8]) -> io::Result<String> {
        let digest = hex(&Sha256::digest(bytes));
        let path = self.path(&digest);
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        let temporary = self.root.join(format!("{}-{number}.{UNFINISHED}", std::process::id()));
        let written = std::fs::write(&temporary, bytes).and_then(|()| into_place(&temporary, &path));
        if written.is_err() {
            // A full disk: nothing that could not be finished stays behind.
            let _ = std::fs::remove_file(&temporary);
        }
        written?;
        self.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(digest)
    }

    /// The bytes of a digest; none if they are not there, or are not what the digest says.
    pub fn get(&self, digest: &str) -> Option<Vec<u8>> {
        let legal = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bytes = legal.then(|| std::fs::read(self.path(digest)).ok()).flatten()?;
        (hex(&Sha256::digest(&bytes)) == digest).then_some(bytes)
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

    /// Removes what is older than a moment and that nobody needs: reports that were not applied, and those of nodes that
    /// have left. A blob that is put again is a new file, so what a report of now needs is never old.
    pub fn sweep(&self, before: SystemTime, needed: impl Fn(&str) -> bool) -> io::Result<usize> {
        let mut removed = 0;
        for head in std::fs::read_dir(&self.root)? {
            let head = head?;
            if !head.file_type()?.is_dir() {
                continue;
            }
            for tail in std::fs::read_dir(head.path())? {
                let tail = tail?;
                let digest = format!("{}{}", head.file_name().display(), tail.file_name().display());
                let old = tail.metadata().and_then(|found| found.modified()).is_ok_and(|at| at < before);
                if old && !needed(&digest) {
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
        let (head, tail) = digest.split_at(digest.len().min(2));
        self.root.join(head).join(tail)
    }
}

/// Makes the directory only when it is missing, which is 256 times in the life of a store: a report costs one rename.
fn into_place(temporary: &Path, path: &Path) -> io::Result<()> {
    match (std::fs::rename(temporary, path), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(parent)?;
            std::fs::rename(temporary, path)
        }
        (renamed, _) => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_takes_what_is_old_and_not_needed() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path()).unwrap();
        let (needed, orphan) = (blobs.put(b"needed").unwrap(), blobs.put(b"orphan").unwrap());
        let written = |digest: &str| std::fs::metadata(blobs.path(digest)).unwrap().modified().unwrap();
        let early = written(&needed).min(written(&orphan));
        assert_eq!(blobs.sweep(early, |_| false).unwrap(), 0, "nothing is old");
        let late = written(&orphan) + std::time::Duration::from_secs(1);
        assert_eq!(blobs.sweep(late, |digest| digest == needed).unwrap(), 1);
        assert_eq!((blobs.get(&needed).is_some(), blobs.get(&orphan).is_some()), (true, false));
    }

    #[test]
    fn what_was_put_is_got_and_what_was_damaged_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path()).unwrap();
        let digest = blobs.put(b"a log").unwrap();
        std::fs::write(dir.path().join("1-1.unfinished"), b"ha").unwrap();
        let blobs = Blobs::open(dir.path()).unwrap();
        assert!(!dir.path().join("1-1.unfinished").exists());
        assert_eq!(blobs.put(b"a log").unwrap(), digest);
        assert_eq!(blobs.get(&digest).as_deref(), Some(&b"a log"[..]));
        std::fs::write(blobs.path(&digest), b"another").unwrap();
        assert_eq!(blobs.get(&digest), None);
        blobs.remove(&digest);
        blobs.remove(&digest);
        assert_eq!(blobs.get(&digest), None);
        assert_eq!(blobs.get("../../etc/passwd"), None);
    }
}
