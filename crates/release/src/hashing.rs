//! Computes the SHA-256 digest and size of a stream while it is read or written.

use std::io::{self, Read, Write};

use muster_core::release::manifest::Digest;
use sha2::{Digest as _, Sha256};

/// A reader or writer that hashes and counts the bytes that pass through it, such as those of an upload or download.
#[derive(Debug)]
pub struct HashStream<T> {
    inner: T,
    hash: Sha256,
    size: u64,
}

impl<T> HashStream<T> {
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

    fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
    }
}

impl<W: Write> Write for HashStream<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.update(bytes.get(..written).unwrap_or(bytes));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for HashStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}

/// Reads a stream to its end; returns the digest and the number of bytes.
pub fn digest_of(from: impl Read) -> io::Result<(Digest, u64)> {
    let mut hashing = HashStream::new(from);
    let mut buffer = vec![0; 64 * 1024];
    while hashing.read(&mut buffer)? != 0 {}
    let (_, digest, size) = hashing.finish();
    Ok((digest, size))
}
