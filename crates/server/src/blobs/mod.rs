//! Blobs: data that is too large for the store. Reports with their logs, files of designs and bundles of releases, each named
//! by the digest of its content.
//!
//! - [`compression`]: compression of reports.
//! - [`store`]: interface of a blob store, and uploads. [`directory`]: the implementation, which replicas share.
//! - [`downloads`]: large blobs on their way out. Neither uploads nor downloads are held in memory as a whole.
//!
//! A blob is written before the key that names it is committed, and readers compare it with its digest: a partial blob counts
//! as missing. Reports are not synced to disk one by one: after a power failure a log can be missing, and readers say so;
//! the status that names it is never lost. Designs, plans and bundles are synced ([`Blobs::keep_for_good`],
//! [`Blobs::receive`]).

mod compression;
mod directory;
pub(crate) mod downloads;
mod store;

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

use directory::Directory;

pub use store::{BlobReader, BlobStore, BlobUpload, PendingBlob, ReceiveError};

/// Blobs of a server.
#[derive(Debug)]
pub struct Blobs {
    place: Box<dyn BlobStore>,
    marks: BlobMarks,
    written: AtomicU64,
    written_bytes: AtomicU64,
}

impl Blobs {
    /// Opens a directory, and creates it if it does not exist.
    pub fn open(root: &Path, replica: ReplicaId) -> io::Result<Self> {
        let place = Box::new(Directory::open(root, replica)?);
        let (written, written_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { place, marks: BlobMarks::new(root), written, written_bytes })
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

    /// Empty directory for unpacking. It is removed with its handle.
    pub(crate) fn workspace(&self) -> io::Result<tempfile::TempDir> {
        self.place.workspace()
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
        match compression::smaller(bytes) {
            Some(smaller) => self.keep(digest, &smaller),
            None => self.keep(digest, bytes),
        }
    }

    /// Stores blobs whose digests are known, durably: they survive a power failure when this returns.
    pub fn keep_for_good<'a>(&self, blobs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> io::Result<()> {
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
                Ok(read) => incoming.take(piece.get(..read).unwrap_or_default())?,
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
        Ok(compression::content(&bytes).filter(|content| Self::digest(content) == digest))
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
    /// never loses its blob.
    pub fn sweep(&self, now: SystemTime, needed: impl Fn(&str) -> bool) -> io::Result<usize> {
        self.place.sweep(now, &needed)
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
mod tests;
