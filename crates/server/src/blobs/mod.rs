//! Blobs: data that is too large for the store. Reports with their logs, files of designs and bundles of releases, each named
//! by the digest of its content.
//!
//! - [`compression`]: compression of reports.
//! - [`store`]: interface of a blob store, and uploads. [`directory`]: the implementation, which replicas share.
//! - [`downloads`]: large blobs on their way out. Neither uploads nor downloads are held in memory as a whole.
//!
//! A blob is written before the key that names it is committed, and readers compare it with its digest: a partial blob counts
//! as missing. Reports are not synced to disk one by one: after a power failure a log can be missing, and readers say so;
//! the status that names it is never lost. Designs, plans and bundles are synced ([`Blobs::keep_durably`],
//! [`Blobs::receive`]).

mod directory;
pub(crate) mod downloads;
mod store;
pub(crate) mod unregistered;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use muster_core::names::ReplicaId;
use muster_core::release::dir::hex;
use muster_core::report::Report;
use sha2::{Digest, Sha256};

use crate::replica::identity::{host, new_id};
use crate::replica::shared_blobs::BlobMarks;

use directory::BlobDirectory;
use unregistered::{UnregisteredBundles, UnregisteredUsage, UploadReservation, UploadsFull};

pub(crate) use store::BlobStream;
pub use store::{BlobReader, BlobStore, BlobUpload, PendingBlob, ReceiveError};

/// Blobs of a server.
#[derive(Debug)]
pub struct Blobs {
    place: Box<dyn BlobStore>,
    marks: BlobMarks,
    unregistered: Arc<UnregisteredBundles>,
    written: AtomicU64,
    written_bytes: AtomicU64,
}

impl Blobs {
    /// Opens a directory, and creates it if it does not exist.
    pub fn open(root: &Path, replica: ReplicaId) -> io::Result<Self> {
        let place = Box::new(BlobDirectory::open(root, replica)?);
        let (written, written_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { place, marks: BlobMarks::new(root), unregistered: Arc::default(), written, written_bytes })
    }

    /// Opens the directory for a command that is not a server. Servers may use the directory at the same time.
    pub fn open_beside_servers(root: &Path) -> io::Result<Self> {
        Self::open(root, new_id(&host()).map_err(io::Error::other)?)
    }

    /// Marks of the replicas that share the directory.
    pub(crate) fn marks(&self) -> BlobMarks {
        self.marks.clone()
    }

    /// Temporary file on the same disk. It has no name, and is removed with its handle.
    pub fn spool(&self) -> io::Result<std::fs::File> {
        self.place.spool()
    }

    /// Digest that names some bytes.
    pub fn digest(bytes: &[u8]) -> String {
        hex(&Sha256::digest(bytes))
    }

    /// Stores bytes. Returns their digest.
    pub fn put(&self, bytes: &[u8]) -> io::Result<String> {
        let digest = Self::digest(bytes);
        self.keep(&digest, bytes)?;
        Ok(digest)
    }

    /// Stores bytes whose digest is known.
    pub(crate) fn keep(&self, digest: &str, bytes: &[u8]) -> io::Result<()> {
        self.place.keep(digest, bytes)?;
        self.count(bytes.len() as u64);
        Ok(())
    }

    /// Stores a report whose digest is known, compressed if that makes it smaller.
    pub(crate) fn keep_report(&self, digest: &str, bytes: &[u8]) -> io::Result<()> {
        match directory::smaller(bytes) {
            Some(smaller) => self.keep(digest, &smaller),
            None => self.keep(digest, bytes),
        }
    }

    /// Stores blobs whose digests are known, durably: they survive a power failure when this returns.
    pub fn keep_durably<'a>(&self, blobs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> io::Result<()> {
        let mut written = Vec::new();
        for (digest, bytes) in blobs {
            self.keep(digest, bytes)?;
            written.push(digest);
        }
        self.place.sync(&written)
    }

    /// Begins an upload of at most `limit` bytes.
    pub fn receive(&self, limit: u64) -> io::Result<BlobUpload> {
        Ok(BlobUpload::new(self.place.begin()?, limit))
    }

    /// Finishes an upload whose digest is known, durably. Returns its size.
    pub fn finish(&self, incoming: BlobUpload, digest: &str) -> Result<u64, ReceiveError> {
        let size = incoming.finish(digest)?;
        self.count(size);
        Ok(size)
    }

    /// Stores the content of a reader in pieces, durably. Blocks.
    pub fn keep_all(&self, digest: &str, limit: u64, mut from: impl io::Read) -> Result<u64, ReceiveError> {
        let mut incoming = self.receive(limit).map_err(ReceiveError::Io)?;
        let mut piece = vec![0; downloads::PIECE];
        loop {
            match from.read(&mut piece) {
                Ok(0) => return self.finish(incoming, digest),
                Ok(read) => incoming.write_piece(piece.get(..read).unwrap_or_default())?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ReceiveError::Io(error)),
            }
        }
    }

    /// Opens a blob for reading in pieces; none if it does not exist. The content is not compared with the digest.
    pub fn stored(&self, digest: &str) -> io::Result<Option<Box<dyn BlobReader>>> {
        if is_digest(digest) { self.place.open(digest) } else { Ok(None) }
    }

    /// Protects a blob from sweeps for a while, before a key refers to it; false if it does not exist.
    pub fn renew(&self, digest: &str) -> io::Result<bool> {
        if is_digest(digest) { self.place.renew(digest) } else { Ok(false) }
    }

    /// Content of a blob; none if it is missing or damaged, or cannot be read.
    pub fn get(&self, digest: &str) -> Option<Vec<u8>> {
        self.find(digest).ok().flatten()
    }

    /// Content of a blob; none if it is missing or damaged. An error if the directory cannot be read now.
    pub fn find(&self, digest: &str) -> io::Result<Option<Vec<u8>>> {
        if !is_digest(digest) {
            return Ok(None);
        }
        let Some(bytes) = self.place.get(digest)? else { return Ok(None) };
        if Self::digest(&bytes) == digest {
            return Ok(Some(bytes));
        }
        Ok(directory::content(&bytes).filter(|content| Self::digest(content) == digest))
    }

    /// Compares a blob with its digest, in pieces; false if it is missing or damaged. For blobs that are not compressed. Blocks.
    pub fn is_intact(&self, digest: &str) -> io::Result<bool> {
        let Some(stored) = self.stored(digest)? else { return Ok(false) };
        let (mut found, mut place, mut piece) = (Sha256::new(), 0, vec![0; downloads::PIECE]);
        loop {
            match stored.read_at(&mut piece, place)? {
                0 => return Ok(hex(&found.finalize()) == digest),
                read => {
                    found.update(piece.get(..read).unwrap_or_default());
                    place += read as u64;
                }
            }
        }
    }

    /// Number of blobs written so far, and their bytes.
    pub fn written(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.written_bytes.load(Ordering::Relaxed))
    }

    /// Reads reports; missing ones are left out.
    pub async fn reports(self: &Arc<Self>, digests: Vec<String>) -> Vec<Report> {
        let blobs = Arc::clone(self);
        let read = move || -> Vec<Report> {
            let texts = digests.iter().filter_map(|digest| blobs.get(digest));
            texts.filter_map(|text| serde_json::from_slice(&text).ok()).collect()
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }

    /// Returns true if the blobs belong to this store. A directory without an owner is claimed for it. Another store does not
    /// know which blobs this one needs, and must not sweep them.
    pub fn belong_to(&self, store: &str) -> io::Result<bool> {
        self.place.belong_to(store)
    }

    /// Removes old blobs that no key refers to: reports that were not applied, of nodes that have left, bundles that were not
    /// registered, and unfinished writes of killed servers. A blob that is stored again is a new file, so a report in progress
    /// never loses its blob. At most `limit` blobs are removed: the next sweep continues.
    pub fn sweep(&self, now: SystemTime, limit: usize, needed: impl Fn(&str) -> bool) -> io::Result<usize> {
        let removed = self.place.sweep(now, limit, &needed)?;
        let left = self.unregistered_uploads(needed)?;
        self.unregistered.swept(removed, left, self.place.unfinished_elsewhere()?);
        Ok(removed)
    }

    /// Reserves room for an upload.
    pub(crate) fn reserve_upload(
        &self,
        bytes: u64,
        is_registered: impl Fn(&str) -> bool,
    ) -> io::Result<Result<UploadReservation, UploadsFull>> {
        let (stored, unfinished) = (self.unregistered_uploads(is_registered)?, self.place.unfinished_elsewhere()?);
        Ok(self.unregistered.reserve(bytes, stored, unfinished))
    }

    /// Marks an upload as not registered. It counts until it is registered or swept.
    pub(crate) fn mark_upload(&self, reservation: UploadReservation, digest: &str, size: u64) -> io::Result<()> {
        self.place.mark_upload(digest)?;
        reservation.stored(digest, size);
        Ok(())
    }

    /// Uploads that are neither registered nor removed, with their sizes. Removes the marks of the others.
    fn unregistered_uploads(&self, is_registered: impl Fn(&str) -> bool) -> io::Result<HashMap<String, u64>> {
        let mut left = HashMap::new();
        for digest in self.place.marked_uploads()? {
            match self.stored(&digest)? {
                Some(stored) if !is_registered(&digest) => _ = left.insert(digest, stored.size()),
                Some(_) | None => self.place.unmark_upload(&digest)?,
            }
        }
        Ok(left)
    }

    /// Number and bytes of unregistered bundles, and counters.
    pub(crate) fn unregistered(&self) -> UnregisteredUsage {
        self.unregistered.usage()
    }

    /// Removes a blob. A missing one is no error.
    pub fn remove(&self, digest: &str) {
        if let Err(error) = self.place.remove(digest) {
            tracing::warn!(%error, digest, "a blob cannot be removed");
        }
    }

    fn count(&self, bytes: u64) {
        self.written.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Returns true if the text is a valid blob name. Only valid names become paths.
pub(crate) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::directory::{STORE, YOUNG};
    use super::*;

    fn open(dir: &Path, replica: &str) -> Blobs {
        Blobs::open(dir, ReplicaId::new(replica).unwrap()).unwrap()
    }

    fn path(dir: &Path, digest: &str) -> PathBuf {
        dir.join(&digest[..2]).join(&digest[2..])
    }

    #[test]
    fn sweep_removes_old_blobs_that_are_not_needed() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = open(dir.path(), "one-1");
        let (needed, orphan) = (blobs.put(b"needed").unwrap(), blobs.put(b"orphan").unwrap());
        let unfinished = dir.path().join("other-2-7.unfinished");
        std::fs::write(&unfinished, b"ha").unwrap();
        let mark = dir.path().join(".replicas").join("other-2");
        std::fs::create_dir(dir.path().join(".replicas")).unwrap();
        std::fs::write(&mark, b"nonce").unwrap();
        let unpacked = dir.path().join(".unpacked-x");
        std::fs::create_dir(&unpacked).unwrap();
        std::fs::write(unpacked.join("bundle"), b"half").unwrap();
        let written = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
        let last = written(&path(dir.path(), &orphan)).max(written(&unfinished)).max(written(&unpacked));

        assert_eq!(blobs.sweep(last, 9, |_| false).unwrap(), 0, "another replica may have written it just now");
        assert!(unfinished.exists() && unpacked.exists());
        let late = last + YOUNG + Duration::from_secs(1);
        assert_eq!(blobs.sweep(late, 0, |digest| digest == needed).unwrap(), 0, "a sweep has a limit");
        assert!(!unfinished.exists() && !unpacked.exists(), "the limit is one of blobs");
        assert_eq!(blobs.sweep(late, 9, |digest| digest == needed).unwrap(), 1);
        assert_eq!((blobs.get(&needed).is_some(), blobs.get(&orphan).is_some()), (true, false));
        assert_eq!((unfinished.exists(), unpacked.exists(), mark.exists()), (false, false, true));
    }

    #[test]
    fn renewed_blob_survives_a_sweep() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = open(dir.path(), "one-1");
        let digest = blobs.put(b"a bundle").unwrap();
        let file = std::fs::File::options().append(true).open(path(dir.path(), &digest)).unwrap();
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        file.set_modified(long_ago).unwrap();
        assert!(blobs.renew(&digest).unwrap());
        let renewed = file.metadata().unwrap().modified().unwrap();
        assert_eq!(blobs.sweep(renewed, 9, |_| false).unwrap(), 0);
        assert!(!blobs.renew(&Blobs::digest(b"nothing")).unwrap());
        assert!(!blobs.renew("../x").unwrap());
        assert_eq!(blobs.get(&digest).as_deref(), Some(&b"a bundle"[..]));
    }

    #[test]
    fn unregistered_uploads_count_until_registered_or_swept() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = open(dir.path(), "one-1");
        let [kept, registered, lost] = ["kept", "registered", "lost"].map(|text| {
            let reservation = blobs.reserve_upload(100, |_| false).unwrap().unwrap();
            let digest = blobs.put(text.as_bytes()).unwrap();
            blobs.mark_upload(reservation, &digest, text.len() as u64).unwrap();
            digest
        });
        // Another replica, or a restarted one.
        let other = open(dir.path(), "two-2");
        drop(other.reserve_upload(0, |_| false).unwrap().unwrap());
        assert_eq!((other.unregistered().count, other.unregistered().bytes), (3, 18));
        blobs.remove(&lost);
        drop(other.reserve_upload(0, |digest| digest == registered).unwrap().unwrap());
        assert_eq!((other.unregistered().count, other.unregistered().bytes), (1, 4));
        let late = std::fs::metadata(path(dir.path(), &kept)).unwrap().modified().unwrap() + 2 * YOUNG;
        assert_eq!(blobs.sweep(late, 9, |digest| digest == registered).unwrap(), 1);
        let usage = blobs.unregistered();
        assert_eq!((usage.count, usage.bytes, usage.swept), (0, 0, 1));
    }

    #[test]
    fn unfinished_files_of_killed_servers_count_as_uploads() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = open(dir.path(), "one-1");
        std::fs::write(dir.path().join("killed-2-7.unfinished"), b"half a bundle").unwrap();
        let upload = blobs.receive(100).unwrap();
        let reservation = blobs.reserve_upload(100, |_| false).unwrap().unwrap();
        assert_eq!((blobs.unregistered().count, blobs.unregistered().bytes), (2, 113), "its own is reserved");
        drop((upload, reservation));
        assert_eq!((blobs.unregistered().count, blobs.unregistered().bytes), (1, 13));
    }

    #[test]
    fn sweep_continues_when_another_replica_removes_files() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = open(dir.path(), "one-1");
        let digests = ["a", "b", "c"].map(|text| blobs.put(text.as_bytes()).unwrap());
        let late = std::fs::metadata(path(dir.path(), &digests[0])).unwrap().modified().unwrap() + 2 * YOUNG;
        let remove_others = |digest: &str| {
            for other in digests.iter().filter(|other| *other != digest) {
                let _ = std::fs::remove_dir_all(path(dir.path(), other).parent().unwrap());
            }
            false
        };
        assert_eq!(blobs.sweep(late, 9, remove_others).unwrap(), 1);
        assert_eq!(walk(dir.path()), 0);
    }

    #[test]
    fn directory_belongs_to_its_first_store() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = open(dir.path(), "one-1");
        assert!(blobs.belong_to("embedded:/state/store").unwrap());
        assert!(!blobs.belong_to("etcd://127.0.0.1:2379").unwrap());
        assert!(open(dir.path(), "two-2").belong_to("embedded:/state/store").unwrap());
        for half in ["", "embedded:/st"] {
            std::fs::write(dir.path().join(STORE), half).unwrap();
            assert!(blobs.belong_to("embedded:/state/store").unwrap(), "the writer of {half:?} was killed");
            assert!(!blobs.belong_to("etcd://127.0.0.1:2379").unwrap());
        }
    }

    #[test]
    fn damaged_blob_counts_as_missing() {
        let dir = tempfile::tempdir().unwrap();
        let digest = open(dir.path(), "one-1").put(b"a log").unwrap();
        let blobs = open(dir.path(), "other-2");
        assert_eq!(blobs.put(b"a log").unwrap(), digest);
        assert_eq!(blobs.get(&digest).as_deref(), Some(&b"a log"[..]));
        std::fs::write(path(dir.path(), &digest), b"another").unwrap();
        assert_eq!(blobs.get(&digest), None);
        assert_eq!(blobs.put(b"a log").unwrap(), digest);
        assert_eq!(blobs.get(&digest).as_deref(), Some(&b"a log"[..]), "what a killed server left is replaced");
        blobs.remove(&digest);
        blobs.remove(&digest);
        assert_eq!(blobs.get(&digest), None);
        assert_eq!(blobs.get("../../etc/passwd"), None);
    }

    #[test]
    fn upload_is_stored_only_if_its_digest_matches() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = open(dir.path(), "one-1");
        let bytes = vec![7; 300_000];
        let digest = Blobs::digest(&bytes);
        let files = || walk(dir.path());

        let mut cut_off = blobs.receive(1 << 20).unwrap();
        cut_off.write_piece(&bytes[..1000]).unwrap();
        assert_eq!(files(), 1);
        drop(cut_off);
        assert_eq!(files(), 0, "an incomplete upload leaves no file");

        let mut flipped = bytes.clone();
        flipped[150_000] ^= 1;
        let refused = blobs.keep_all(&digest, 1 << 20, flipped.as_slice()).unwrap_err();
        assert!(matches!(refused, ReceiveError::Another { size: 300_000, .. }), "{refused}");
        let refused = blobs.keep_all(&digest, 299_999, bytes.as_slice()).unwrap_err();
        assert!(matches!(refused, ReceiveError::TooLarge { limit: 299_999 }), "{refused}");
        assert_eq!(files(), 0);

        for _ in 0..2 {
            assert_eq!(blobs.keep_all(&digest, 300_000, bytes.as_slice()).unwrap(), 300_000);
        }
        assert_eq!(files(), 1);
        let stored = blobs.stored(&digest).unwrap().unwrap();
        let mut middle = [0; 10];
        assert_eq!((stored.size(), stored.read_at(&mut middle, 299_995).unwrap()), (300_000, 5));
        assert!(blobs.stored(&Blobs::digest(b"nothing")).unwrap().is_none());
        assert!(blobs.stored("../../etc/passwd").unwrap().is_none());
    }

    fn walk(dir: &Path) -> usize {
        let count = |entry: std::fs::DirEntry| if entry.path().is_dir() { walk(&entry.path()) } else { 1 };
        std::fs::read_dir(dir).unwrap().map(|entry| count(entry.unwrap())).sum()
    }

    #[test]
    fn report_is_compressed_and_reads_back_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = open(dir.path(), "one-1");
        let report = "the same line again and again\n".repeat(1000).into_bytes();
        let digest = Blobs::digest(&report);
        blobs.keep_report(&digest, &report).unwrap();
        assert!(blobs.stored(&digest).unwrap().unwrap().size() < 1000);
        assert_eq!(blobs.get(&digest).as_deref(), Some(&report[..]));
        // Blobs from before compression, or from a backup, are read in the same way.
        blobs.keep(&digest, &report).unwrap();
        assert_eq!(blobs.stored(&digest).unwrap().unwrap().size(), report.len() as u64);
        assert_eq!(blobs.get(&digest).as_deref(), Some(&report[..]));
        // A compressed blob of other content does not match the digest.
        let other = Blobs::digest(b"other");
        blobs.keep(&other, &zstd::bulk::compress(&report, 1).unwrap()).unwrap();
        assert_eq!(blobs.get(&other), None);
    }

    #[test]
    fn unreadable_blob_is_an_error_not_missing() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = open(dir.path(), "one-1");
        let digest = blobs.put(b"a plan").unwrap();
        assert_eq!(blobs.find(&Blobs::digest(b"nothing")).unwrap(), None);
        let place = path(dir.path(), &digest);
        std::fs::remove_file(&place).unwrap();
        std::fs::create_dir(&place).unwrap();
        assert!(blobs.find(&digest).is_err());
        std::fs::remove_dir(&place).unwrap();
        assert_eq!(blobs.find(&digest).unwrap(), None);
    }
}
