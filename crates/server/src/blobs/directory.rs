//! Blobs in a directory that several replicas may share: one file each, `ab/cdef…`.
//!
//! Only old files are swept: a new one may belong to a write of another replica.
//!
//! Reports are stored compressed, since most of a report is a log with repeated lines. A blob is named by the digest of its
//! uncompressed content, and readers verify it. No flag says whether a file is compressed, and uncompressed files are read as
//! they are.

use std::fs::{DirEntry, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use std::{io, thread};

use muster_core::names::ReplicaId;

use crate::private_files::{create_private_dir, create_private_file, private_file, restrict_tree};

use super::store::{BlobReader, BlobStore, Note, PendingBlob, UnfinishedFiles, hash_reader};

/// Characters of a digest that name its directory.
pub(super) const HEAD: usize = 2;
/// Extension of a file that is being written.
const UNFINISHED: &str = "unfinished";
/// Prefix of a directory into which earlier versions of Muster have unpacked a bundle.
const WORKSPACE: &str = ".unpacked-";
/// Up to this many files are synced one by one.
const FEW: usize = 16;

/// Younger blobs may belong to a report or a bundle that another replica is about to commit. Much longer than a commit
/// takes, and than the clocks of machines that share a directory differ.
pub(super) const YOUNG: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct BlobDirectory {
    root: PathBuf,
    /// Makes the names of unfinished files unique.
    replica: ReplicaId,
    counter: AtomicU64,
}

impl BlobDirectory {
    /// Opens the directory, and creates it if it does not exist. Only its owner can read the files in it.
    pub(super) fn open(root: &Path, replica: ReplicaId) -> io::Result<Self> {
        create_private_dir(root)?;
        restrict_tree(root)?;
        Ok(Self { root: root.to_owned(), replica, counter: AtomicU64::new(0) })
    }

    pub(super) fn path(&self, digest: &str) -> PathBuf {
        let (head, tail) = digest.split_at_checked(HEAD).unwrap_or((digest, ""));
        self.root.join(head).join(tail)
    }

    fn keep_one(&self, digest: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(digest);
        match create(&path) {
            // It needs no temporary name: no reader looks for it before its key is committed.
            Ok(file) => fill(file, &path, bytes),
            // The same bytes, or a partial write of a killed server. A reader may have it open.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let temporary = self.unfinished();
                fill(private_file().write(true).create(true).truncate(true).open(&temporary)?, &temporary, bytes)?;
                std::fs::rename(&temporary, &path)
            }
            Err(error) => Err(error),
        }
    }

    fn unfinished(&self) -> PathBuf {
        let number = self.counter.fetch_add(1, Ordering::Relaxed);
        self.root.join(format!("{}-{number}.{UNFINISHED}", self.replica))
    }
}

impl BlobStore for BlobDirectory {
    fn keep(&self, blobs: &[(&str, &[u8])]) -> Vec<io::Result<()>> {
        blobs.iter().map(|(digest, bytes)| self.keep_one(digest, bytes)).collect()
    }

    fn sync(&self, digests: &[&str]) -> io::Result<()> {
        if digests.len() > FEW {
            // One sync of the file system instead of one for each file.
            return Ok(rustix::fs::syncfs(File::open(&self.root)?)?);
        }
        // On common file systems, syncing a new file also makes its name durable, and concurrent syncs share one commit of the
        // journal.
        let sync = |digest: &str| File::open(self.path(digest))?.sync_data();
        let Some((first, others)) = digests.split_first() else { return Ok(()) };
        thread::scope(|scope| {
            let others: Vec<_> = others.iter().map(|digest| scope.spawn(move || sync(digest))).collect();
            let first = sync(first);
            let synced = |other: thread::ScopedJoinHandle<'_, io::Result<()>>| {
                other.join().unwrap_or_else(|_| Err(io::Error::other("a thread that syncs a file panicked")))
            };
            others.into_iter().map(synced).fold(first, io::Result::and)
        })
    }

    fn get(&self, digest: &str) -> io::Result<Option<Vec<u8>>> {
        if_exists(std::fs::read(self.path(digest)))
    }

    fn get_all(&self, digests: &[&str]) -> Vec<io::Result<Option<Vec<u8>>>> {
        digests.iter().map(|digest| self.get(digest)).collect()
    }

    fn begin(&self) -> io::Result<Box<dyn PendingBlob>> {
        let path = self.unfinished();
        let file = create_private_file(&path)?;
        Ok(Box::new(PendingFile { file, path: Some(path), root: self.root.clone() }))
    }

    fn size(&self, digest: &str) -> io::Result<Option<u64>> {
        Ok(if_exists(std::fs::metadata(self.path(digest)))?.map(|file| file.len()))
    }

    fn open(&self, digest: &str) -> io::Result<Option<Box<dyn BlobReader>>> {
        let Some(file) = if_exists(File::open(self.path(digest)))? else { return Ok(None) };
        let size = file.metadata()?.len();
        Ok(Some(Box::new(FileReader { file, size })))
    }

    fn is_intact(&self, digest: &str) -> io::Result<bool> {
        Ok(self.open(digest)?.map(|stored| hash_reader(&*stored)).transpose()?.is_some_and(|found| found == digest))
    }

    fn renew(&self, digest: &str) -> io::Result<bool> {
        #[expect(clippy::disallowed_methods, reason = "the time of a file, which is the machine's own")]
        let now = SystemTime::now();
        let renewed = File::options().append(true).open(self.path(digest)).and_then(|file| file.set_modified(now));
        Ok(if_exists(renewed)?.is_some())
    }

    fn remove(&self, digest: &str) -> io::Result<()> {
        if_exists(std::fs::remove_file(self.path(digest))).map(drop)
    }

    fn sweep(&self, now: SystemTime, limit: usize, needed: &dyn Fn(&str) -> bool) -> io::Result<usize> {
        let before = now.checked_sub(YOUNG).unwrap_or(SystemTime::UNIX_EPOCH);
        let is_old = |entry: &DirEntry| {
            entry.metadata().and_then(|found| found.modified()).is_ok_and(|modified| modified < before)
        };
        let mut heads = Vec::new();
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            // Another replica may have removed it.
            let Some(kind) = if_exists(entry.file_type())? else { continue };
            if !kind.is_dir() {
                if is_unfinished(&entry) && is_old(&entry) {
                    if_exists(std::fs::remove_file(entry.path()))?;
                }
            } else if entry.file_name().to_str().is_some_and(|name| name.starts_with(WORKSPACE)) {
                if is_old(&entry) {
                    if_exists(std::fs::remove_dir_all(entry.path()))?;
                }
            } else if entry.file_name().len() == HEAD {
                heads.push(entry);
            }
        }
        let mut removed = 0;
        for head in heads {
            let Some(tails) = if_exists(std::fs::read_dir(head.path()))? else { continue };
            for tail in tails {
                let tail = tail?;
                let digest = format!("{}{}", head.file_name().display(), tail.file_name().display());
                if removed >= limit {
                    return Ok(removed);
                }
                if is_old(&tail) && !needed(&digest) {
                    self.remove(&digest)?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    fn unfinished_elsewhere(&self) -> io::Result<UnfinishedFiles> {
        let own = format!("{}-", self.replica);
        let mut found = UnfinishedFiles::default();
        for entry in std::fs::read_dir(&self.root)? {
            let entry = entry?;
            if !is_unfinished(&entry) || entry.file_name().to_str().is_some_and(|name| name.starts_with(&own)) {
                continue;
            }
            if let Some(file) = if_exists(entry.metadata())? {
                found.count += 1;
                found.bytes += file.len();
            }
        }
        Ok(found)
    }

    fn put_note(&self, name: &str, content: &str) -> io::Result<()> {
        let path = self.root.join(name);
        if let Some(folder) = path.parent() {
            create_private_dir(folder)?;
        }
        private_file().write(true).create(true).truncate(true).open(path)?.write_all(content.as_bytes())
    }

    fn note(&self, name: &str) -> io::Result<Option<String>> {
        if_exists(std::fs::read_to_string(self.root.join(name)))
    }

    fn notes(&self, folder: &str) -> io::Result<Vec<Note>> {
        let Some(files) = if_exists(std::fs::read_dir(self.root.join(folder)))? else { return Ok(Vec::new()) };
        let note = |file: io::Result<DirEntry>| {
            let file = file?;
            let Ok(name) = file.file_name().into_string() else { return Ok(None) };
            // Another replica may have removed it.
            let found = if_exists(file.metadata())?;
            found.map(|found| Ok(Note { name, modified: found.modified()? })).transpose()
        };
        files.filter_map(|file| note(file).transpose()).collect()
    }

    fn remove_note(&self, name: &str) -> io::Result<()> {
        if_exists(std::fs::remove_file(self.root.join(name))).map(drop)
    }

    fn spool(&self) -> io::Result<File> {
        tempfile::tempfile_in(&self.root)
    }
}

/// A file that is being written, under a temporary name.
#[derive(Debug)]
struct PendingFile {
    file: File,
    /// None once it has its final name.
    path: Option<PathBuf>,
    root: PathBuf,
}

impl Write for PendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl PendingBlob for PendingFile {
    fn finish(mut self: Box<Self>, digest: &str) -> io::Result<()> {
        self.file.sync_all()?;
        let (head, tail) = digest.split_at_checked(HEAD).unwrap_or((digest, ""));
        let parent = self.root.join(head);
        create_private_dir(&parent)?;
        if let Some(path) = self.path.take()
            && let Err(error) = std::fs::rename(&path, parent.join(tail))
        {
            self.path = Some(path);
            return Err(error);
        }
        // Makes the names durable: of the file, and of its directory, which may be new.
        File::open(&parent)?.sync_all()?;
        File::open(&self.root)?.sync_all()
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(%error, path = %path.display(), "an unfinished file cannot be removed");
        }
    }
}

#[derive(Debug)]
pub(super) struct FileReader {
    pub(super) file: File,
    size: u64,
}

impl FileReader {
    pub(super) fn new(file: File, size: u64) -> Self {
        Self { file, size }
    }
}

impl BlobReader for FileReader {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        loop {
            match self.file.read_at(buffer, place) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

/// For a copy that several readers share.
impl BlobReader for Arc<FileReader> {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        self.as_ref().read_at(buffer, place)
    }
}

/// True for a file that is being written, or that a killed server has left.
fn is_unfinished(entry: &DirEntry) -> bool {
    Path::new(&entry.file_name()).extension().is_some_and(|extension| extension == UNFINISHED)
}

fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Creates the directory only when it is missing: 256 times in the life of a store.
fn create(path: &Path) -> io::Result<File> {
    match (create_private_file(path), path.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            create_private_dir(parent)?;
            create_private_file(path)
        }
        (created, _) => created,
    }
}

/// Writes a file. Removes it if the disk is full.
fn fill(mut file: File, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let written = file.write_all(bytes);
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

/// Fastest level: a log of 64 KiB takes a quarter of a millisecond, and shrinks to a tenth.
const LEVEL: i32 = 1;
/// Smaller blobs would save no disk block.
const SMALL: usize = 2 * 1024;
/// First bytes of a zstd frame.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Largest content. No report is larger.
const LIMIT: u64 = 16 * 1024 * 1024;

/// Compressed bytes, if they are smaller.
pub(super) fn smaller(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < SMALL {
        return None;
    }
    let compressed = zstd::bulk::compress(bytes, LEVEL).ok()?;
    (compressed.len() < bytes.len()).then_some(compressed)
}

/// Content of a compressed blob; none if it is not compressed.
pub(super) fn content(kept: &[u8]) -> Option<Vec<u8>> {
    if !kept.starts_with(&MAGIC) {
        return None;
    }
    let read = || -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        // Bounded: a few bytes can expand to gigabytes.
        zstd::Decoder::with_buffer(kept)?.take(LIMIT).read_to_end(&mut content)?;
        Ok(content)
    };
    read().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_log_reads_back_unchanged() {
        let log = "notice: /Stage[main]/Db/File[/etc/db.conf]/content: content changed\n".repeat(900);
        let kept = smaller(log.as_bytes()).unwrap();
        assert!(kept.len() * 10 < log.len(), "{}", kept.len());
        assert_eq!(content(&kept).unwrap(), log.as_bytes());
        assert_eq!(smaller(b"short"), None);
        assert_eq!(content(b"short"), None);
        assert_eq!(content(&kept[..kept.len() - 3]), None, "half a frame is nothing");
    }

    #[test]
    fn decompression_is_bounded() {
        let bomb = zstd::encode_all(io::repeat(0).take(LIMIT * 4), 1).unwrap();
        assert!(content(&bomb).is_none_or(|content| content.len() as u64 <= LIMIT));
    }
}
