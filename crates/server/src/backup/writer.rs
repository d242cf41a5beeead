//! Writes a backup file: a tar archive in a zstd stream, readable with `tar --zstd -xf`.

use std::io::{self, Read, Write};

use muster_core::release::dir::hex;
use muster_wire::backup::{BackupManifest, BackupTrailer};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::blobs::BlobReader;

use super::{BLOBS, END, KEYS, MANIFEST};

/// Size of an entry with keys. Bounds the memory of readers.
const PIECE: usize = 1024 * 1024;
/// Compresses reports to a tenth; higher levels gain little.
const LEVEL: i32 = 3;

#[derive(Debug, Error)]
pub enum BackupWriteError {
    #[error("the backup cannot be written")]
    Io(#[from] io::Error),
    #[error("an entry of the backup cannot be written")]
    Json(#[from] serde_json::Error),
}

/// One key, on its own line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeyLine<'a> {
    /// Without the prefix of the environment.
    pub(super) key: std::borrow::Cow<'a, str>,
    #[serde(flatten)]
    pub(super) value: LineValue<'a>,
}

/// Values of Muster are text. A key of another program may hold any bytes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LineValue<'a> {
    Value(std::borrow::Cow<'a, str>),
    Hex(String),
}

impl<'a> LineValue<'a> {
    pub(super) fn from_bytes(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => LineValue::Value(text.into()),
            Err(_) => LineValue::Hex(hex(bytes)),
        }
    }

    /// None if the digits are invalid.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            LineValue::Value(text) => Some(text.as_bytes().to_vec()),
            LineValue::Hex(digits) => {
                let pairs = digits.as_bytes().chunks(2).map(|pair| {
                    let text = std::str::from_utf8(pair).ok().filter(|text| text.len() == 2)?;
                    u8::from_str_radix(text, 16).ok()
                });
                pairs.collect()
            }
        }
    }
}

/// Checksum over every entry in order: name, length, content.
#[derive(Debug, Default)]
pub(super) struct Checksum(Sha256);

impl Checksum {
    pub(super) fn add(&mut self, name: &str, content: &[u8]) {
        self.begin(name, content.len() as u64);
        self.update(content);
    }

    /// Begins an entry whose content follows in pieces.
    pub(super) fn begin(&mut self, name: &str, size: u64) {
        self.0.update(format!("{name}\0{size}\0"));
    }

    pub(super) fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub(super) fn end(self) -> String {
        format!("sha256:{}", hex(&self.0.finalize()))
    }
}

/// A backup that is being written.
pub(super) struct Archive<W: Write> {
    tar: tar::Builder<zstd::Encoder<'static, W>>,
    checksum: Checksum,
    /// Modification time of every entry, in seconds, from the manifest.
    time: u64,
    piece: Vec<u8>,
    pieces: usize,
    keys: usize,
    blobs: usize,
}

impl<W: Write> Archive<W> {
    pub(super) fn begin(to: W, manifest: &BackupManifest) -> Result<Self, BackupWriteError> {
        let mut zstd = zstd::Encoder::new(to, LEVEL)?;
        zstd.include_checksum(true)?;
        let mut archive = Self {
            tar: tar::Builder::new(zstd),
            checksum: Checksum::default(),
            time: u64::try_from(manifest.taken.as_second()).unwrap_or(0),
            piece: Vec::new(),
            pieces: 0,
            keys: 0,
            blobs: 0,
        };
        archive.entry(MANIFEST, &serde_json::to_vec_pretty(manifest)?)?;
        Ok(archive)
    }

    pub(super) fn key(&mut self, key: &str, value: &[u8]) -> Result<(), BackupWriteError> {
        serde_json::to_writer(&mut self.piece, &KeyLine { key: key.into(), value: LineValue::from_bytes(value) })?;
        self.piece.push(b'\n');
        self.keys += 1;
        if self.piece.len() >= PIECE { self.end_piece() } else { Ok(()) }
    }

    /// Adds a blob; its content must match the digest. All keys come before all blobs.
    pub(super) fn blob(&mut self, digest: &str, content: &[u8]) -> Result<(), BackupWriteError> {
        self.end_piece()?;
        self.blobs += 1;
        self.entry(&format!("{BLOBS}{digest}"), content)
    }

    /// Adds a blob that is read in pieces. A blob that has become shorter fails the backup.
    pub(super) fn large_blob(&mut self, digest: &str, content: &dyn BlobReader) -> Result<(), BackupWriteError> {
        self.end_piece()?;
        self.blobs += 1;
        let (name, size) = (format!("{BLOBS}{digest}"), content.size());
        let mut header = self.header(size);
        self.checksum.begin(&name, size);
        let checksum = &mut self.checksum;
        let pieces = BlobPieces { content, place: 0, seen: |piece: &[u8]| checksum.update(piece) };
        Ok(self.tar.append_data(&mut header, name, pieces)?)
    }

    pub(super) fn end(mut self, missing: Vec<String>) -> Result<(BackupTrailer, W), BackupWriteError> {
        self.end_piece()?;
        let checksum = std::mem::take(&mut self.checksum).end();
        let ending = BackupTrailer { keys: self.keys, blobs: self.blobs, missing, checksum };
        self.entry(END, &serde_json::to_vec_pretty(&ending)?)?;
        let mut to = self.tar.into_inner()?.finish()?;
        to.flush()?;
        Ok((ending, to))
    }

    fn end_piece(&mut self) -> Result<(), BackupWriteError> {
        if self.piece.is_empty() {
            return Ok(());
        }
        self.pieces += 1;
        let piece = std::mem::take(&mut self.piece);
        self.entry(&format!("{KEYS}{:06}.jsonl", self.pieces), &piece)?;
        // Reuses the allocation.
        self.piece = piece;
        self.piece.clear();
        Ok(())
    }

    fn entry(&mut self, name: &str, content: &[u8]) -> Result<(), BackupWriteError> {
        self.tar.append_data(&mut self.header(content.len() as u64), name, content)?;
        self.checksum.add(name, content);
        Ok(())
    }

    fn header(&self, size: u64) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o600);
        header.set_mtime(self.time);
        header
    }
}

/// Reads a blob in pieces, up to the size that it had, and passes each piece to `seen`.
pub(super) struct BlobPieces<'a, F> {
    pub(super) content: &'a dyn BlobReader,
    pub(super) place: u64,
    pub(super) seen: F,
}

impl<F: FnMut(&[u8])> Read for BlobPieces<'_, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.content.size() - self.place;
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(buffer) = buffer.get_mut(..room).filter(|buffer| !buffer.is_empty()) else { return Ok(0) };
        let read = self.content.read_at(buffer, self.place)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        (self.seen)(buffer.get(..read).unwrap_or_default());
        self.place += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_reads_back_from_its_line() {
        for bytes in [&b""[..], b"v1", b"{\"a\":1}", "ä\n\t\"".as_bytes(), b"\xff\x00\x80", b"\0"] {
            let text =
                serde_json::to_string(&KeyLine { key: "x/y".into(), value: LineValue::from_bytes(bytes) }).unwrap();
            assert!(!text.contains('\n'));
            let line: KeyLine<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!((&*line.key, line.value.bytes().unwrap()), ("x/y", bytes.to_vec()), "{text}");
        }
        for broken in ["0", "0g", "ä"] {
            assert_eq!(LineValue::Hex(broken.into()).bytes(), None, "{broken}");
        }
    }
}
