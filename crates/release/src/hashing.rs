//! SHA-256 of what goes by.

use std::io::{self, Read, Write};

use muster_core::release_manifest::Digest;
use sha2::{Digest as _, Sha256};

/// Writes on, or reads on, and knows the size and digest of what has gone by. For a download that is hashed while it is
/// written, and for an upload that is hashed while it is received.
#[derive(Debug)]
pub struct Hashing<T> {
    inner: T,
    hash: Sha256,
    size: u64,
}

impl<T> Hashing<T> {
    pub fn new(inner: T) -> Self {
        Self { inner, hash: Sha256::new(), size: 0 }
    }

    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Bytes so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn finish(self) -> (T, Digest, u64) {
        (self.inner, Digest::of_sha256(&self.hash.finalize().into()), self.size)
    }

    fn saw(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.saw(bytes.get(..written).unwrap_or(bytes));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.saw(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}

/// The digest and the size of everything that is left in a reader.
pub fn digest_of(from: impl Read) -> io::Result<(Digest, u64)> {
    let mut hashing = Hashing::new(from);
    let mut buffer = vec![0; 64 * 1024];
    while hashing.read(&mut buffer)? != 0 {}
    let (_, digest, size) = hashing.finish();
    Ok((digest, size))
}
