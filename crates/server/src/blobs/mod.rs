//! What is too large for the store: reports with their logs, the files of designs and the bundles of releases, each
//! named by the digest of its content.
//!
//! - [`compression`]: the form in which reports are kept.
//! - [`store`]: what a place for blobs can do. [`directory`]: the one that there is. Several replicas share it.
//! - [`store::BlobUpload`]: something large on its way in. [`downloads`]: something large on its way out. Neither is ever in
//!   memory as a whole.
//!
//! A blob is written before the key that names it is committed, and whoever reads it compares it with its digest: so
//! half a blob is no blob. A report is not synced to disk on its own: after a power cut a log can be missing, and readers
//! say so; the status that names it is never lost. What somebody wrote by hand is ([`Blobs::keep_for_good`],
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

/// The blobs of a server.
#[derive(Debug)]
pub struct Blobs {
    place: Box<dyn BlobStore>,
    marks: BlobMarks,
    written: AtomicU64,
    written_bytes: AtomicU64,
}

impl Blobs {
    /// Opens a directory, and makes it if it is not there.
    pub fn open(root: &Path, replica: ReplicaId) -> io::Result<Self> {
        let place = Box::new(Directory::open(root, replica)?);
        let (written, written_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { place, marks: BlobMarks::new(root), written, written_bytes })
    }

    /// Opens the directory for a command that is no server, and writes beside those that are.
    pub fn open_beside_servers(root: &Path) -> io::Result<Self> {
        Self::open(root, new_id(&host()).map_err(io::Error::other)?)
    }

    /// The marks of the replicas that share the place.
    pub(crate) fn marks(&self) -> BlobMarks {
        self.marks.clone()
    }

    /// A file for something large that is on its way, on the same disk. Nobody else sees it, and it goes with its handle.
    pub fn spool(&self) -> io::Result<std::fs::File> {
        self.place.spool()
    }

    /// An empty directory to unpack something in. It goes with its handle.
    pub(crate) fn workspace(&self) -> io::Result<tempfile::TempDir> {
        self.place.workspace()
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
        self.place.keep(digest, bytes)?;
        self.count(bytes.len() as u64);
        Ok(())
    }

    /// Keeps a report whose digest is known, compressed if that makes it smaller.
    pub(crate) fn keep_report(&self, digest: &str, bytes: &[u8]) -> io::Result<()> {
        match compression::smaller(bytes) {
            Some(smaller) => self.keep(digest, &smaller),
            None => self.keep(digest, bytes),
        }
    }

    /// Keeps blobs whose digests are known, and returns when a power cut can no longer take them away.
    pub fn keep_for_good<'a>(&self, blobs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> io::Result<()> {
        let mut written = Vec::new();
        for (digest, bytes) in blobs {
            self.keep(digest, bytes)?;
            written.push(digest);
        }
        self.place.sync(&written)
    }

    /// Begins to take in something large, at most so many bytes.
    pub fn receive(&self, limit: u64) -> io::Result<BlobUpload> {
        Ok(BlobUpload::new(self.place.begin()?, limit))
    }

    /// Keeps something large whose digest is known, for good. Returns its size.
    pub fn finish(&self, incoming: BlobUpload, digest: &str) -> Result<u64, ReceiveError> {
        let size = incoming.finish(digest)?;
        self.count(size);
        Ok(size)
    }

    /// Keeps what a reader gives, for good, piece by piece. It blocks.
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

    /// Opens something large, to be read in pieces; none if it is not there. What is read is not compared with the digest.
    pub fn stored(&self, digest: &str) -> io::Result<Option<Box<dyn BlobReader>>> {
        if is_digest(digest) { self.place.open(digest) } else { Ok(None) }
    }

    /// Keeps a blob that is there from being swept away for a while, for somebody who is about to name it; false if it is
    /// not there.
    pub fn renew(&self, digest: &str) -> io::Result<bool> {
        if is_digest(digest) { self.place.renew(digest) } else { Ok(false) }
    }

    /// The bytes of a digest; none if they are not there, or are not what the digest says, or nobody can say.
    pub fn get(&self, digest: &str) -> Option<Vec<u8>> {
        self.find(digest).ok().flatten()
    }

    /// The same for whoever must tell what is not there from a place that does not answer now.
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

    /// How many blobs were put so far, and their bytes.
    pub fn written(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.written_bytes.load(Ordering::Relaxed))
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

    /// Whether the blobs belong to this store; what belongs to none belongs to it from now on. Another store knows
    /// nothing of what this one needs, and must not sweep it away.
    pub fn belong_to(&self, store: &str) -> io::Result<bool> {
        self.place.belong_to(store)
    }

    /// Removes what is old and that nobody needs: reports that were not applied, those of nodes that have left, bundles
    /// that nobody registered, and what a killed server has not finished writing. A blob that is put again is a new file,
    /// so what a report of now needs is never old.
    pub fn sweep(&self, now: SystemTime, needed: impl Fn(&str) -> bool) -> io::Result<usize> {
        self.place.sweep(now, &needed)
    }

    /// Forgets a blob that nothing refers to any more. One that is gone already is no error.
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

/// Whether a text can be the name of a blob. Nothing else is ever made a path of.
pub(crate) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests;
