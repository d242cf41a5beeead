//! Interface of a blob store, and uploads that are verified while they are written.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::SystemTime;

use muster_core::release::dir::hex;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::downloads::PIECE;

/// A store of blobs by digest, shared by all replicas.
///
/// Every call blocks. A digest is 64 hexadecimal digits; the caller has checked that.
pub trait BlobStore: fmt::Debug + Send + Sync {
    /// Stores bytes under their digests, with a result for each. They may not survive a power failure yet.
    fn keep(&self, blobs: &[(&str, &[u8])]) -> Vec<io::Result<()>>;

    /// Makes blobs durable: they survive a power failure when this returns.
    fn sync(&self, digests: &[&str]) -> io::Result<()>;

    /// Content of a blob, not verified; none if it does not exist.
    fn get(&self, digest: &str) -> io::Result<Option<Vec<u8>>>;

    /// Contents of blobs, in their order, as [`Self::get`] returns them.
    fn get_all(&self, digests: &[&str]) -> Vec<io::Result<Option<Vec<u8>>>>;

    /// Begins a blob whose digest is known only at its end. It is not visible before it is finished.
    fn begin(&self) -> io::Result<Box<dyn PendingBlob>>;

    /// Stored size of a blob; none if it does not exist.
    fn size(&self, digest: &str) -> io::Result<Option<u64>>;

    /// Opens a blob. Once a byte was read it can be read to its end, also if it is removed meanwhile.
    fn open(&self, digest: &str) -> io::Result<Option<Box<dyn BlobReader>>>;

    /// Compares the stored content of a blob with its digest; false if it is missing or damaged.
    fn is_intact(&self, digest: &str) -> io::Result<bool>;

    /// Makes a blob young again, before a key refers to it; false if it does not exist.
    fn renew(&self, digest: &str) -> io::Result<bool>;

    /// Removes a blob. A missing one is no error.
    fn remove(&self, digest: &str) -> io::Result<()>;

    /// Removes old blobs that are not needed, at most `limit` of them, and old unfinished writes. Returns the number of blobs.
    fn sweep(&self, now: SystemTime, limit: usize, needed: &dyn Fn(&str) -> bool) -> io::Result<usize>;

    /// Unfinished writes of other replicas, and those that killed servers have left.
    fn unfinished_elsewhere(&self) -> io::Result<UnfinishedFiles>;

    /// Writes a note: a few bytes under a name such as `.replicas/one-1`, which all replicas see.
    fn put_note(&self, name: &str, content: &str) -> io::Result<()>;

    /// Content of a note; none if it does not exist.
    fn note(&self, name: &str) -> io::Result<Option<String>>;

    /// All notes in a folder.
    fn notes(&self, folder: &str) -> io::Result<Vec<Note>>;

    /// Removes a note. A missing one is no error.
    fn remove_note(&self, name: &str) -> io::Result<()>;

    /// Temporary file. It has no name, and is removed with its handle.
    fn spool(&self) -> io::Result<File>;
}

/// A note, by its name in its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub name: String,
    pub modified: SystemTime,
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

/// Digest of a blob's content, read in pieces.
pub(super) fn hash_reader(blob: &dyn BlobReader) -> io::Result<String> {
    let (mut found, mut place, mut piece) = (Sha256::new(), 0, vec![0; PIECE]);
    loop {
        match blob.read_at(&mut piece, place)? {
            0 => return Ok(hex(&found.finalize())),
            read => {
                found.update(piece.get(..read).unwrap_or_default());
                place += read as u64;
            }
        }
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
