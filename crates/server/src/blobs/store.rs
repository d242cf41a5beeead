//! Interface of a blob store, and uploads that are verified while they are written.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::time::SystemTime;

use muster_core::release::dir::hex;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use thiserror::Error;

/// A place that keeps blobs under their digests, and that all replicas share.
///
/// Every call blocks: it is made on a thread that may wait. A digest is 64 hexadecimal digits; whoever calls has looked.
pub trait BlobStore: fmt::Debug + Send + Sync {
    /// Keeps bytes under their digest. Returns before they would survive a power cut.
    fn keep(&self, digest: &str, bytes: &[u8]) -> io::Result<()>;

    /// Returns when a power cut can no longer take these away.
    fn sync(&self, digests: &[&str]) -> io::Result<()>;

    /// What is kept under a digest; none if nothing is. Nothing is compared.
    fn get(&self, digest: &str) -> io::Result<Option<Vec<u8>>>;

    /// Begins something large whose digest is known only at its end. Nobody sees it before it is finished.
    fn begin(&self) -> io::Result<Box<dyn PendingBlob>>;

    /// Opens something large. Who has it open can read it to its end, also when it is removed meanwhile.
    fn open(&self, digest: &str) -> io::Result<Option<Box<dyn BlobReader>>>;

    /// Makes a blob young again, for somebody who is about to name it; false if it is not there.
    fn renew(&self, digest: &str) -> io::Result<bool>;

    /// Forgets a blob. One that is gone already is no error.
    fn remove(&self, digest: &str) -> io::Result<()>;

    /// Removes what is old and that nobody needs, and what was begun long ago and not finished. Returns how many blobs.
    fn sweep(&self, now: SystemTime, needed: &dyn Fn(&str) -> bool) -> io::Result<usize>;

    /// Whether the place belongs to this store; one that belongs to none belongs to it from now on. Another store knows
    /// nothing of what this one needs, and must not sweep it away.
    fn belong_to(&self, store: &str) -> io::Result<bool>;

    /// A file for something large that is on its way. Nobody else sees it, and it goes with its handle.
    fn spool(&self) -> io::Result<File>;

    /// An empty directory on this machine to unpack something in. It goes with its handle.
    fn workspace(&self) -> io::Result<TempDir>;
}

/// A blob that is being written. Dropped before its end, it leaves nothing behind.
pub trait PendingBlob: Write + fmt::Debug + Send {
    /// Keeps what was written under its digest. When this returns, a power cut can no longer take it away.
    fn finish(self: Box<Self>, digest: &str) -> io::Result<()>;
}

/// A blob that can be read from any place in it, by several at once.
pub trait BlobReader: fmt::Debug + Send + Sync {
    fn size(&self) -> u64;

    /// Reads what follows a place, at most as much as the buffer holds; nothing only at the end.
    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize>;
}

#[derive(Debug, Error)]
pub enum ReceiveError {
    #[error("it has more than {limit} bytes")]
    TooLarge { limit: u64 },
    #[error("it is not what its digest says: {expected} was expected, and {size} bytes with {found} arrived")]
    Another { expected: String, found: String, size: u64 },
    #[error("it cannot be kept")]
    Io(#[source] io::Error),
}

/// What has arrived so far. Dropped before its end, it leaves nothing behind.
#[derive(Debug)]
pub struct BlobUpload {
    to: Box<dyn PendingBlob>,
    digest: Sha256,
    size: u64,
    limit: u64,
}

impl BlobUpload {
    pub(super) fn new(to: Box<dyn PendingBlob>, limit: u64) -> Self {
        Self { to, digest: Sha256::new(), size: 0, limit }
    }

    /// Takes the next piece. It blocks.
    pub fn take(&mut self, piece: &[u8]) -> Result<(), ReceiveError> {
        self.size = self.size.saturating_add(piece.len() as u64);
        if self.size > self.limit {
            return Err(ReceiveError::TooLarge { limit: self.limit });
        }
        self.digest.update(piece);
        self.to.write_all(piece).map_err(ReceiveError::Io)
    }

    /// Keeps it for good, if its digest is this one. Returns its size. It blocks.
    pub fn finish(self, expected: &str) -> Result<u64, ReceiveError> {
        let found = hex(&self.digest.finalize());
        if found != expected {
            return Err(ReceiveError::Another { expected: expected.to_owned(), found, size: self.size });
        }
        self.to.finish(&found).map_err(ReceiveError::Io)?;
        Ok(self.size)
    }
}

/// For those who write to whatever there is to be written to.
impl Write for BlobUpload {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match self.take(piece) {
            Ok(()) => Ok(piece.len()),
            Err(ReceiveError::Io(error)) => Err(error),
            Err(error @ (ReceiveError::TooLarge { .. } | ReceiveError::Another { .. })) => Err(io::Error::other(error)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
