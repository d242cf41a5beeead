//! Blobs: data that is too large for the store. Reports with their logs, files of designs and bundles of releases, each named
//! by the digest of its content.
//!
//! - [`store`]: interface of a blob store, and uploads. Its implementations, which replicas share: [`directory`], with the
//!   compression of reports, and [`s3`].
//! - [`report_packs`]: the reports of a transaction in one blob.
//! - [`downloads`]: large blobs on their way out. Neither uploads nor downloads are held in memory as a whole.
//!
//! A blob is written before the key that names it is committed, and readers compare it with its digest: a partial blob counts
//! as missing. Reports are not synced to disk one by one: after a power failure a log can be missing, and readers say so;
//! the status that names it is never lost. Designs, plans and bundles are synced ([`Blobs::keep_durably`],
//! [`Blobs::receive`]).

mod directory;
pub(crate) mod downloads;
pub(crate) mod report_packs;
pub(crate) mod s3;
mod store;
pub(crate) mod unregistered;

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use muster_core::names::ReplicaId;
use muster_core::release::dir::hex;
use muster_core::report::Report;
use sha2::{Digest, Sha256};

use crate::replica::identity::{host, new_id, random};
use crate::replica::shared_blobs::BlobMarks;

use directory::BlobDirectory;
use report_packs::{ReportPack, blob_of};
use s3::S3Store;
use store::Note;
use unregistered::{UnregisteredBundles, UnregisteredUsage, UploadReservation, UploadsFull};

pub use s3::{BlobPlace, BlobPlaceError, S3Place, S3Timing};
pub(crate) use store::BlobStream;
pub use store::{BlobReader, BlobStore, BlobUpload, PendingBlob, ReceiveError};

/// Note with the name of the store that these blobs belong to.
const STORE: &str = ".store";
/// Folder with an empty note for each upload that is not registered yet.
const UPLOADS: &str = ".uploads";
/// Folder of notes that doctors write and remove.
const PROBES: &str = ".probes";
/// Times that a blob is read again when its content does not match its digest: a network may have damaged the answer.
const REREADS: usize = 2;

/// Blobs of a server.
#[derive(Debug)]
pub struct Blobs {
    place: Arc<dyn BlobStore>,
    unregistered: Arc<UnregisteredBundles>,
    written: AtomicU64,
    written_bytes: AtomicU64,
}

impl Blobs {
    /// Opens a directory, which is created if it does not exist, or a bucket.
    pub fn open(place: impl Into<BlobPlace>, replica: ReplicaId) -> io::Result<Self> {
        let place: Arc<dyn BlobStore> = match place.into() {
            BlobPlace::Directory(root) => Arc::new(BlobDirectory::open(&root, replica)?),
            BlobPlace::S3(place) => Arc::new(S3Store::open(place)?),
        };
        let (written, written_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { place, unregistered: Arc::default(), written, written_bytes })
    }

    /// Opens the blobs for a command that is not a server. Servers may use them at the same time.
    pub fn open_beside_servers(place: impl Into<BlobPlace>) -> io::Result<Self> {
        Self::open(place, new_id(&host()).map_err(io::Error::other)?)
    }

    /// Marks of the replicas that share the blobs.
    pub(crate) fn marks(&self) -> BlobMarks {
        BlobMarks::new(self.place.clone())
    }

    /// Temporary file, of a directory on the same disk. It has no name, and is removed with its handle.
    pub fn spool(&self) -> io::Result<std::fs::File> {
        self.place.spool()
    }

    /// Writes some bytes and removes them: an error says why nothing can be kept.
    pub(crate) fn check_writable(&self) -> io::Result<()> {
        self.spool()?.write_all(b"muster")?;
        let note = format!("{PROBES}/{:016x}", random());
        self.place.put_note(&note, "muster")?;
        self.place.remove_note(&note)
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
        self.keep_each(&[(digest, bytes)]).into_iter().collect()
    }

    /// Stores bytes whose digests are known, with a result for each.
    fn keep_each(&self, blobs: &[(&str, &[u8])]) -> Vec<io::Result<()>> {
        let results = self.place.keep(blobs);
        for (_, (_, bytes)) in results.iter().zip(blobs).filter(|(result, _)| result.is_ok()) {
            self.count(bytes.len() as u64);
        }
        results
    }

    /// Stores packs of reports, compressed, with a result for each.
    pub(crate) fn keep_packs(&self, packs: &[&ReportPack]) -> Vec<io::Result<()>> {
        let compressed: Vec<Option<Vec<u8>>> = packs.iter().map(|pack| directory::smaller(&pack.bytes)).collect();
        let stored = |(pack, smaller)| {
            let (pack, smaller): (&ReportPack, &Option<Vec<u8>>) = (pack, smaller);
            (&*pack.digest, smaller.as_deref().unwrap_or(&pack.bytes))
        };
        self.keep_each(&packs.iter().copied().zip(&compressed).map(stored).collect::<Vec<_>>())
    }

    /// Stores blobs whose digests are known, durably: they survive a power failure when this returns.
    pub fn keep_durably<'a>(&self, blobs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> io::Result<()> {
        let blobs: Vec<_> = blobs.into_iter().collect();
        self.keep_each(&blobs).into_iter().collect::<io::Result<()>>()?;
        self.place.sync(&blobs.iter().map(|(digest, _)| *digest).collect::<Vec<_>>())
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

    /// Stored size of a blob; none if it does not exist.
    pub fn size(&self, digest: &str) -> io::Result<Option<u64>> {
        if is_digest(digest) { self.place.size(digest) } else { Ok(None) }
    }

    /// Protects a blob from sweeps for a while, before a key refers to it; false if it does not exist.
    pub fn renew(&self, digest: &str) -> io::Result<bool> {
        if is_digest(digest) { self.place.renew(digest) } else { Ok(false) }
    }

    /// Content of a blob; none if it is missing or damaged, or cannot be read.
    pub fn get(&self, digest: &str) -> Option<Vec<u8>> {
        self.find(digest).ok().flatten()
    }

    /// Content of a blob; none if it is missing or damaged. An error if it cannot be read now.
    pub fn find(&self, digest: &str) -> io::Result<Option<Vec<u8>>> {
        self.find_all(&[digest]).pop().unwrap_or(Ok(None))
    }

    /// Contents of blobs, in their order, as [`Self::find`] returns them.
    pub fn find_all(&self, digests: &[&str]) -> Vec<io::Result<Option<Vec<u8>>>> {
        // Only valid names become paths.
        let legal: Vec<&str> = digests.iter().filter(|digest| is_digest(digest)).copied().collect();
        let mut stored = self.place.get_all(&legal).into_iter();
        let mut verified = |digest: &str| {
            if !is_digest(digest) {
                return Ok(None);
            }
            let mut found = stored.next().unwrap_or(Ok(None))?;
            for _ in 0..REREADS {
                match found {
                    None => return Ok(None),
                    Some(bytes) => match verified_content(digest, bytes) {
                        None => found = self.place.get(digest)?,
                        content => return Ok(content),
                    },
                }
            }
            Ok(found.and_then(|bytes| verified_content(digest, bytes)))
        };
        digests.iter().map(|digest| verified(digest)).collect()
    }

    /// Compares a blob with its digest, in pieces; false if it is missing or damaged. For blobs that are not compressed. Blocks.
    pub fn is_intact(&self, digest: &str) -> io::Result<bool> {
        if is_digest(digest) { self.place.is_intact(digest) } else { Ok(false) }
    }

    /// Number of blobs written so far, and their bytes.
    pub fn written(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.written_bytes.load(Ordering::Relaxed))
    }

    /// Reads the reports at these places; missing ones are left out.
    pub async fn reports(self: &Arc<Self>, places: Vec<String>) -> Vec<Report> {
        let blobs = Arc::clone(self);
        let read = move || -> Vec<Report> {
            // The two reports of a run may be in one pack.
            let mut digests: Vec<&str> = places.iter().map(|place| blob_of(place)).collect();
            digests.sort_unstable();
            digests.dedup();
            let contents: HashMap<&str, Vec<u8>> = digests
                .iter()
                .zip(blobs.find_all(&digests))
                .filter_map(|(digest, content)| Some((*digest, content.ok().flatten()?)))
                .collect();
            let text = |place: &String| report_packs::report_at(place, contents.get(blob_of(place))?);
            places.iter().filter_map(text).filter_map(|text| serde_json::from_slice(&text).ok()).collect()
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }

    /// Returns true if the blobs belong to this store. A directory without an owner is claimed for it. Another store does not
    /// know which blobs this one needs, and must not sweep them.
    pub fn belong_to(&self, store: &str) -> io::Result<bool> {
        let owner = self.place.note(STORE)?.unwrap_or_default();
        // A server that was killed at its first start may have left an incomplete file.
        if owner.ends_with('\n') {
            return Ok(owner.trim_end() == store);
        }
        self.place.put_note(STORE, &format!("{store}\n"))?;
        Ok(true)
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
        self.place.put_note(&format!("{UPLOADS}/{digest}"), "")?;
        reservation.stored(digest, size);
        Ok(())
    }

    /// Uploads that are neither registered nor removed, with their sizes. Removes the marks of the others.
    fn unregistered_uploads(&self, is_registered: impl Fn(&str) -> bool) -> io::Result<HashMap<String, u64>> {
        let mut left = HashMap::new();
        for Note { name: digest, .. } in self.place.notes(UPLOADS)?.into_iter().filter(|note| is_digest(&note.name)) {
            match self.size(&digest)? {
                Some(size) if !is_registered(&digest) => _ = left.insert(digest, size),
                Some(_) | None => self.place.remove_note(&format!("{UPLOADS}/{digest}"))?,
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

/// Content of a blob that may be compressed; none if it does not match its digest.
fn verified_content(digest: &str, bytes: Vec<u8>) -> Option<Vec<u8>> {
    if Blobs::digest(&bytes) == digest {
        return Some(bytes);
    }
    directory::content(&bytes).filter(|content| Blobs::digest(content) == digest)
}

/// Returns true if a bucket did not answer: the error says nothing about the blob.
pub(crate) fn is_unavailable(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<s3::S3Error>())
}

/// Returns true if the text is a valid blob name. Only valid names become paths.
pub(crate) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod contract;

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::directory::YOUNG;
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
    fn incomplete_owner_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = open(dir.path(), "one-1");
        for half in ["", "embedded:/st"] {
            std::fs::write(dir.path().join(STORE), half).unwrap();
            assert!(blobs.belong_to("embedded:/state/store").unwrap(), "the writer of {half:?} was killed");
            assert!(!blobs.belong_to("etcd://127.0.0.1:2379").unwrap());
        }
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
