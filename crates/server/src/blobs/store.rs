//! Interface of a blob store, and uploads that are verified while they are written.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::SystemTime;

use muster_core::release::dir::hex;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// A store of blobs by digest, shared by all replicas.
///
/// Every call blocks. A digest is 64 hexadecimal digits; the caller has checked that.
pub trait BlobStore: fmt::Debug + Send + Sync {
    /// Stores bytes under their digest. They may not survive a power failure yet.
    fn keep(&self, digest: &str, bytes: &[u8]) -> io::Result<()>;

    /// Makes blobs durable: they survive a power failure when this returns.
    fn sync(&self, digests: &[&str]) -> io::Result<()>;

    /// Content of a blob, not verified; none if it does not exist.
    fn get(&self, digest: &str) -> io::Result<Option<Vec<u8>>>;

    /// Begins a blob whose digest is known only at its end. It is not visible before it is finished.
    fn begin(&self) -> io::Result<Box<dyn PendingBlob>>;

    /// Opens a blob. It can be read to its end, also if it is removed meanwhile.
    fn open(&self, digest: &str) -> io::Result<Option<Box<dyn BlobReader>>>;

    /// Makes a blob young again, before a key refers to it; false if it does not exist.
    fn renew(&self, digest: &str) -> io::Result<bool>;

    /// Removes a blob. A missing one is no error.
    fn remove(&self, digest: &str) -> io::Result<()>;

    /// Removes old blobs that are not needed, at most `limit` of them, and old unfinished writes. Returns the number of blobs.
    fn sweep(&self, now: SystemTime, limit: usize, needed: &dyn Fn(&str) -> bool) -> io::Result<usize>;

    /// Unfinished writes of other replicas, and those that killed servers have left.
    fn unfinished_elsewhere(&self) -> io::Result<UnfinishedFiles>;

    /// Marks a blob as an upload that is not registered yet.
    fn mark_upload(&self, digest: &str) -> io::Result<()>;

    /// Digests of all marked uploads.
    fn marked_uploads(&self) -> io::Result<Vec<String>>;

    /// Removes the mark of an upload. A missing one is no error.
    fn unmark_upload(&self, digest: &str) -> io::Result<()>;

    /// Returns true if the blobs belong to this store. A directory without an owner is claimed for it. Another store does not
    /// know which blobs this one needs, and must not sweep them.
    fn belong_to(&self, store: &str) -> io::Result<bool>;

    /// Temporary file. It has no name, and is removed with its handle.
    fn spool(&self) -> io::Result<File>;
}

/// Number and bytes of unfinished writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnfinishedFiles {
    pub count: usize,
    pub bytes: u64,
}

/// A blob that is being written. Dropped before its end, it is removed.
pub trait PendingBlob: Write + fmt::Debug + Send {
    /// Stores the written content under its digest, durably.
    fn finish(self: Box<Self>, digest: &str) -> io::Result<()>;
}

/// A blob that can be read at any position, by several readers at once.
pub trait BlobReader: fmt::Debug + Send + Sync {
    fn size(&self) -> u64;

    /// Reads at a position, at most as much as the buffer holds; zero bytes only at the end.
    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize>;
}

/// Reads a blob from its first byte to its end.
#[derive(Debug)]
pub(crate) struct BlobStream<'b> {
    blob: &'b dyn BlobReader,
    place: u64,
}

impl<'b> BlobStream<'b> {
    pub(crate) fn new(blob: &'b dyn BlobReader) -> Self {
        Self { blob, place: 0 }
    }
}

impl Read for BlobStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.blob.read_at(buffer, self.place)?;
        self.place += read as u64;
        Ok(read)
    }
}

#[derive(Debug, Error)]
pub enum ReceiveError {
    #[error("it has more than {limit} bytes")]
    TooLarge { limit: u64 },
    #[error("digest mismatch: expected {expected}, received {size} bytes with {found}")]
    Another { expected: String, found: String, size: u64 },
    #[error("it cannot be stored")]
    Io(#[source] io::Error),
}

/// An upload in progress. Dropped before its end, it is removed.
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

    /// Writes the next piece. Blocks.
    pub fn write_piece(&mut self, piece: &[u8]) -> Result<(), ReceiveError> {
        self.size = self.size.saturating_add(piece.len() as u64);
        if self.size > self.limit {
            return Err(ReceiveError::TooLarge { limit: self.limit });
        }
        self.digest.update(piece);
        self.to.write_all(piece).map_err(ReceiveError::Io)
    }

    /// Stores the upload durably, if its digest matches. Returns its size. Blocks.
    pub fn finish(self, expected: &str) -> Result<u64, ReceiveError> {
        let found = hex(&self.digest.finalize());
        if found != expected {
            return Err(ReceiveError::Another { expected: expected.to_owned(), found, size: self.size });
        }
        self.to.finish(&found).map_err(ReceiveError::Io)?;
        Ok(self.size)
    }
}

/// For code that writes to any writer.
impl Write for BlobUpload {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match self.write_piece(piece) {
            Ok(()) => Ok(piece.len()),
            Err(ReceiveError::Io(error)) => Err(error),
            Err(error @ (ReceiveError::TooLarge { .. } | ReceiveError::Another { .. })) => Err(io::Error::other(error)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
