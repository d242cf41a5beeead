//! Reads and verifies a backup. Names, sizes, counts and order are all checked.

use std::io::{self, BufRead, BufReader, Read};

use muster_core::keys::ROOT;
use muster_core::names::Version;
use muster_core::release::dir::hex;
use muster_store::limits::{MAX_KEY, MAX_VALUE};
use muster_wire::backup::{BackupManifest, BackupTrailer, MissingPart};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::create::BlobRefs;
use super::writer::{Checksum, KeyLine};
use super::{BLOBS, CURRENT_VERSION, END, FORMAT, HELD, KEYS, MANIFEST, is_kept};

/// Largest entry that is not a blob, in bytes. An entry of keys has a megabyte.
const MAX_ENTRY: u64 = 64 * 1024 * 1024;
/// Largest blob, in bytes. A bundle has at most a quarter of it.
pub(super) const MAX_BLOB: u64 = 1024 * 1024 * 1024;
/// First bytes of a zstd stream.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Room for the environment's prefix, which is added to a key.
const LONGEST_KEY: usize = MAX_KEY - 128;

/// Reason why a file is not a valid backup.
#[derive(Debug, Error)]
pub enum BackupReadError {
    #[error("this is not a backup of Muster, or it is damaged at its beginning")]
    Foreign(#[source] Option<io::Error>),
    #[error("the backup has format {found}, and this version of Muster reads format {FORMAT}: use a newer one")]
    Format { found: u32 },
    #[error("the backup ends too early: it was truncated while it was written or copied")]
    Truncated,
    #[error("the backup is damaged: {what}")]
    Damaged { what: String },
    #[error("the backup cannot be read")]
    Io(#[source] io::Error),
    #[error("the consumer of the backup has stopped")]
    Stopped,
}

/// Contents of a complete backup.
#[derive(Clone, Debug)]
pub struct Contents {
    pub manifest: BackupManifest,
    pub ending: BackupTrailer,
    /// Missing files of the design and bundles. The environment cannot be used without them.
    pub missing_parts: Vec<MissingPart>,
    /// Names of all keys, without the prefix of the environment, in order.
    pub(super) keys: Vec<String>,
    pub(super) current_version: Option<Version>,
}

/// An item of a backup.
pub(super) enum BackupItem<'a> {
    Key {
        key: String,
        value: Vec<u8>,
    },
    Blob {
        content: Vec<u8>,
    },
    /// A blob that is too large for memory. Its digest is verified at its end.
    LargeBlob {
        digest: &'a str,
        content: &'a mut dyn Read,
    },
}

/// Reads and verifies a whole backup. Writes nothing.
pub fn verify(from: impl Read) -> Result<Contents, BackupReadError> {
    let (mut keys, mut named) = (Vec::new(), BlobRefs::default());
    let mut current_version = None;
    let (manifest, ending) = read(from, |item| {
        if let BackupItem::Key { key, value } = item {
            // The name of the environment makes no difference.
            named.add(&format!("{ROOT}env/{key}"), &value);
            if key == CURRENT_VERSION {
                let text = String::from_utf8(value).unwrap_or_default();
                current_version = Some(Version::new(text).map_err(|error| damaged(error.to_string()))?);
            }
            keys.push(key);
        }
        Ok(())
    })?;
    let missing_parts = named.missing_parts(&ending.missing);
    Ok(Contents { manifest, ending, missing_parts, keys, current_version })
}

/// Reads a backup, and passes its items to `take`: keys first. They are verified only once this returns.
pub(super) fn read(
    from: impl Read,
    mut take: impl FnMut(BackupItem<'_>) -> Result<(), BackupReadError>,
) -> Result<(BackupManifest, BackupTrailer), BackupReadError> {
    let mut from = BufReader::new(from);
    if !from.fill_buf().map_err(BackupReadError::Io)?.starts_with(&MAGIC) {
        return Err(BackupReadError::Foreign(None));
    }
    let zstd = zstd::Decoder::with_buffer(from).map_err(BackupReadError::Io)?;
    let mut archive = tar::Archive::new(zstd);
    let mut state = ReadState::default();
    let mut entries = archive.entries().map_err(|error| state.broken(error))?;
    for entry in &mut entries {
        let mut entry = entry.map_err(|error| state.broken(error))?;
        let name = entry.path().map_err(|error| state.broken(error))?.to_string_lossy().into_owned();
        let size = entry.size();
        if let Some(digest) = name.strip_prefix(BLOBS)
            && (HELD + 1..=MAX_BLOB).contains(&size)
        {
            state.large_blob(digest, size, &mut entry, &mut take)?;
            continue;
        }
        if size > MAX_ENTRY {
            return Err(damaged(format!("{name} has a recorded size of {size} bytes")));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(|error| state.broken(error))?;
        if content.len() as u64 != size {
            return Err(BackupReadError::Truncated);
        }
        state.entry(&name, content, &mut take)?;
    }
    // Reads to the checksum of the compressed stream.
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(|error| state.broken(error))?;
    match (state.manifest, state.ending) {
        (Some(manifest), Some(ending)) => Ok((manifest, ending)),
        (None, _) => Err(BackupReadError::Foreign(None)),
        (Some(_), None) => Err(BackupReadError::Truncated),
    }
}

fn damaged(what: impl Into<String>) -> BackupReadError {
    BackupReadError::Damaged { what: what.into() }
}

#[derive(Default)]
struct ReadState {
    manifest: Option<BackupManifest>,
    ending: Option<BackupTrailer>,
    checksum: Checksum,
    last_key: Option<String>,
    keys: usize,
    blobs: usize,
}

impl ReadState {
    fn entry(
        &mut self,
        name: &str,
        content: Vec<u8>,
        take: &mut impl FnMut(BackupItem<'_>) -> Result<(), BackupReadError>,
    ) -> Result<(), BackupReadError> {
        if self.ending.is_some() {
            return Err(damaged(format!("{name} comes after the end")));
        }
        if self.manifest.is_none() {
            if name != MANIFEST {
                return Err(BackupReadError::Foreign(None));
            }
            self.manifest = Some(manifest(&content)?);
        } else if name == END {
            let ending: BackupTrailer =
                serde_json::from_slice(&content).map_err(|error| damaged(format!("{name}: {error}")))?;
            return self.end(ending);
        } else if name.starts_with(KEYS) && self.blobs == 0 {
            for line in content.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                take(self.key(name, line)?)?;
            }
        } else if let Some(digest) = name.strip_prefix(BLOBS) {
            if hex(&Sha256::digest(&content)) != digest {
                return Err(damaged(format!("{name} does not match its name")));
            }
            self.blobs += 1;
            self.checksum.add(name, &content);
            return take(BackupItem::Blob { content });
        } else {
            return Err(damaged(format!("{name} is not part of a backup")));
        }
        self.checksum.add(name, &content);
        Ok(())
    }

    /// Passes on a blob in pieces, and verifies its digest at its end.
    fn large_blob(
        &mut self,
        digest: &str,
        size: u64,
        from: &mut dyn Read,
        take: &mut impl FnMut(BackupItem<'_>) -> Result<(), BackupReadError>,
    ) -> Result<(), BackupReadError> {
        let name = format!("{BLOBS}{digest}");
        if self.ending.is_some() {
            return Err(damaged(format!("{name} comes after the end")));
        }
        if self.manifest.is_none() {
            return Err(BackupReadError::Foreign(None));
        }
        self.checksum.begin(&name, size);
        let mut pieces =
            BlobContent { from, digest: Sha256::new(), read: 0, failed: None, checksum: &mut self.checksum };
        let taken = take(BackupItem::LargeBlob { digest, content: &mut pieces });
        // The rest is read in any case, to verify it.
        let rest = if taken.is_ok() { io::copy(&mut pieces, &mut io::sink()).map(drop) } else { Ok(()) };
        let BlobContent { digest: found, read, failed, .. } = pieces;
        if let Some(error) = failed.or(rest.err()) {
            return Err(self.broken(error));
        }
        taken?;
        if read != size {
            return Err(BackupReadError::Truncated);
        }
        if hex(&found.finalize()) != digest {
            return Err(damaged(format!("{name} does not match its name")));
        }
        self.blobs += 1;
        Ok(())
    }

    fn key(&mut self, name: &str, line: &[u8]) -> Result<BackupItem<'static>, BackupReadError> {
        let line: KeyLine<'_> = serde_json::from_slice(line).map_err(|error| damaged(format!("{name}: {error}")))?;
        let key = line.key.into_owned();
        let value = line.value.bytes().ok_or_else(|| damaged(format!("the value of {key} cannot be read")))?;
        if key.is_empty() || key.len() > LONGEST_KEY || value.len() > MAX_VALUE || !is_kept(&key) {
            return Err(damaged(format!("{key:.100} is not a key that a backup holds")));
        }
        if self.last_key.as_ref().is_some_and(|last| *last >= key) {
            return Err(damaged(format!("{key} is out of order")));
        }
        self.keys += 1;
        self.last_key = Some(key.clone());
        Ok(BackupItem::Key { key, value })
    }

    fn end(&mut self, ending: BackupTrailer) -> Result<(), BackupReadError> {
        let checksum = std::mem::take(&mut self.checksum).end();
        if checksum != ending.checksum {
            return Err(damaged("its checksum does not match its content"));
        }
        if (ending.keys, ending.blobs) != (self.keys, self.blobs) {
            return Err(damaged("its counts do not match its content"));
        }
        self.ending = Some(ending);
        Ok(())
    }

    /// Error of the archive, depending on how far it was read.
    fn broken(&self, error: io::Error) -> BackupReadError {
        // Message of zstd for a truncated stream.
        let cut_off = error.to_string().contains("incomplete frame");
        match (&self.manifest, error.kind()) {
            _ if cut_off => BackupReadError::Truncated,
            (None, _) => BackupReadError::Foreign(Some(error)),
            (Some(_), io::ErrorKind::UnexpectedEof) => BackupReadError::Truncated,
            (Some(_), _) => damaged(error.to_string()),
        }
    }
}

/// Reads a large blob, and computes its size and digest.
struct BlobContent<'a> {
    from: &'a mut dyn Read,
    digest: Sha256,
    read: u64,
    /// Error of the archive. The consumer of the blob may report it as its own.
    failed: Option<io::Error>,
    checksum: &'a mut Checksum,
}

impl Read for BlobContent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.from.read(buffer) {
            Ok(read) => {
                let piece = buffer.get(..read).unwrap_or_default();
                self.digest.update(piece);
                self.checksum.update(piece);
                self.read += read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let reported = io::Error::new(error.kind(), error.to_string());
                self.failed = Some(error);
                Err(reported)
            }
        }
    }
}

fn manifest(content: &[u8]) -> Result<BackupManifest, BackupReadError> {
    /// Field that every format has.
    #[derive(Deserialize)]
    struct Any {
        format: u32,
    }
    let not_one = |error: serde_json::Error| BackupReadError::Foreign(Some(error.into()));
    let Any { format } = serde_json::from_slice(content).map_err(not_one)?;
    if format == 0 || format > FORMAT {
        return Err(BackupReadError::Format { found: format });
    }
    serde_json::from_slice(content).map_err(not_one)
}
