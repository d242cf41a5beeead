//! Something large on its way in: counted and digested while it is written, and kept only if it is what it should be.

use std::io::{self, Write};

use muster_core::release_dir::hex;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::store::Unfinished;

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
pub struct Incoming {
    to: Box<dyn Unfinished>,
    digest: Sha256,
    size: u64,
    limit: u64,
}

impl Incoming {
    pub(super) fn new(to: Box<dyn Unfinished>, limit: u64) -> Self {
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
impl Write for Incoming {
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
