//! Reads a backup. Nothing of it is believed: neither names, sizes, counts nor order.

use std::io::{self, BufRead, BufReader, Read};

use muster_core::names::Version;
use muster_core::release::dir::hex;
use muster_store::limits::{MAX_KEY, MAX_VALUE};
use muster_wire::backup::{BackupManifest, BackupTrailer};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::writer::{Checksum, Line};
use super::{BLOBS, CURRENT_VERSION, END, FORMAT, HELD, KEYS, MANIFEST, is_kept};

/// No entry but a blob is larger: a piece of keys has a megabyte.
const MAX_ENTRY: u64 = 64 * 1024 * 1024;
/// No blob is larger: a bundle has a quarter of it.
pub(super) const MAX_BLOB: u64 = 1024 * 1024 * 1024;
/// What a zstd stream begins with.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The environment's prefix is added to a key before it is put.
const LONGEST_KEY: usize = MAX_KEY - 128;

/// Why a file is not a backup that can be relied on.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("this is not a backup of Muster, or it is damaged at its beginning")]
    Foreign(#[source] Option<io::Error>),
    #[error("the backup has format {found}, and this version of Muster reads format {FORMAT}: use a newer one")]
    Format { found: u32 },
    #[error("the backup ends too early: it was cut off while it was written or copied")]
    Truncated,
    #[error("the backup is damaged: {what}")]
    Damaged { what: String },
    #[error("the backup cannot be read")]
    Io(#[source] io::Error),
    #[error("whoever took what was read has stopped")]
    Stopped,
}

/// What a whole backup holds.
#[derive(Clone, Debug)]
pub struct Contents {
    pub manifest: BackupManifest,
    pub ending: BackupTrailer,
    /// The names of all keys, without the prefix of the environment, in order.
    pub(super) keys: Vec<String>,
    pub(super) current_version: Option<Version>,
}

/// Something that was in a backup.
pub(super) enum Item<'a> {
    Key {
        key: String,
        value: Vec<u8>,
    },
    Blob {
        content: Vec<u8>,
    },
    /// One that is too large to be held. Whether it is what its name says is known when all of it was read.
    LargeBlob {
        digest: &'a str,
        content: &'a mut dyn Read,
    },
}

/// Reads all of a backup, compares everything that can be compared, and changes nothing.
pub fn verify(from: impl Read) -> Result<Contents, ReadError> {
    let mut keys = Vec::new();
    let mut current_version = None;
    let (manifest, ending) = read(from, |item| {
        if let Item::Key { key, value } = item {
            if key == CURRENT_VERSION {
                let text = String::from_utf8(value).unwrap_or_default();
                current_version = Some(Version::new(text).map_err(|error| damaged(error.to_string()))?);
            }
            keys.push(key);
        }
        Ok(())
    })?;
    Ok(Contents { manifest, ending, keys, current_version })
}

/// Reads a backup, and hands over what is in it: keys first. What it returns is certain only at its end.
pub(super) fn read(
    from: impl Read,
    mut take: impl FnMut(Item<'_>) -> Result<(), ReadError>,
) -> Result<(BackupManifest, BackupTrailer), ReadError> {
    let mut from = BufReader::new(from);
    if !from.fill_buf().map_err(ReadError::Io)?.starts_with(&MAGIC) {
        return Err(ReadError::Foreign(None));
    }
    let zstd = zstd::Decoder::with_buffer(from).map_err(ReadError::Io)?;
    let mut archive = tar::Archive::new(zstd);
    let mut state = State::default();
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
            return Err(damaged(format!("{name} is said to have {size} bytes")));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(|error| state.broken(error))?;
        if content.len() as u64 != size {
            return Err(ReadError::Truncated);
        }
        state.entry(&name, content, &mut take)?;
    }
    // Whatever follows, up to the checksum of the compressed stream itself.
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(|error| state.broken(error))?;
    match (state.manifest, state.ending) {
        (Some(manifest), Some(ending)) => Ok((manifest, ending)),
        (None, _) => Err(ReadError::Foreign(None)),
        (Some(_), None) => Err(ReadError::Truncated),
    }
}

fn damaged(what: impl Into<String>) -> ReadError {
    ReadError::Damaged { what: what.into() }
}

#[derive(Default)]
struct State {
    manifest: Option<BackupManifest>,
    ending: Option<BackupTrailer>,
    checksum: Checksum,
    last_key: Option<String>,
    keys: usize,
    blobs: usize,
}

impl State {
    fn entry(
        &mut self,
        name: &str,
        content: Vec<u8>,
        take: &mut impl FnMut(Item<'_>) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        if self.ending.is_some() {
            return Err(damaged(format!("{name} comes after the end")));
        }
        if self.manifest.is_none() {
            if name != MANIFEST {
                return Err(ReadError::Foreign(None));
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
                return Err(damaged(format!("{name} is not what its name says")));
            }
            self.blobs += 1;
            self.checksum.add(name, &content);
            return take(Item::Blob { content });
        } else {
            return Err(damaged(format!("{name} does not belong there")));
        }
        self.checksum.add(name, &content);
        Ok(())
    }

    /// Hands over a blob in pieces, and compares it with its name at its end.
    fn large_blob(
        &mut self,
        digest: &str,
        size: u64,
        from: &mut dyn Read,
        take: &mut impl FnMut(Item<'_>) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let name = format!("{BLOBS}{digest}");
        if self.ending.is_some() {
            return Err(damaged(format!("{name} comes after the end")));
        }
        if self.manifest.is_none() {
            return Err(ReadError::Foreign(None));
        }
        self.checksum.begin(&name, size);
        let mut pieces = Pieces { from, digest: Sha256::new(), read: 0, failed: None, checksum: &mut self.checksum };
        let taken = take(Item::LargeBlob { digest, content: &mut pieces });
        // Whoever takes nothing of it wants it to be compared all the same.
        let rest = if taken.is_ok() { io::copy(&mut pieces, &mut io::sink()).map(drop) } else { Ok(()) };
        let Pieces { digest: found, read, failed, .. } = pieces;
        if let Some(error) = failed.or(rest.err()) {
            return Err(self.broken(error));
        }
        taken?;
        if read != size {
            return Err(ReadError::Truncated);
        }
        if hex(&found.finalize()) != digest {
            return Err(damaged(format!("{name} is not what its name says")));
        }
        self.blobs += 1;
        Ok(())
    }

    fn key(&mut self, name: &str, line: &[u8]) -> Result<Item<'static>, ReadError> {
        let line: Line<'_> = serde_json::from_slice(line).map_err(|error| damaged(format!("{name}: {error}")))?;
        let key = line.key.into_owned();
        let value = line.value.bytes().ok_or_else(|| damaged(format!("the value of {key} cannot be read")))?;
        if key.is_empty() || key.len() > LONGEST_KEY || value.len() > MAX_VALUE || !is_kept(&key) {
            return Err(damaged(format!("{key:.100} is not a key that a backup holds")));
        }
        if self.last_key.as_ref().is_some_and(|last| *last >= key) {
            return Err(damaged(format!("{key} is not in its place")));
        }
        self.keys += 1;
        self.last_key = Some(key.clone());
        Ok(Item::Key { key, value })
    }

    fn end(&mut self, ending: BackupTrailer) -> Result<(), ReadError> {
        let checksum = std::mem::take(&mut self.checksum).end();
        if checksum != ending.checksum {
            return Err(damaged("its checksum is not that of its content"));
        }
        if (ending.keys, ending.blobs) != (self.keys, self.blobs) {
            return Err(damaged("it does not hold as much as it says"));
        }
        self.ending = Some(ending);
        Ok(())
    }

    /// What an error of the archive means, depending on how far it was read.
    fn broken(&self, error: io::Error) -> ReadError {
        // What zstd says of a stream that was one, and stops.
        let cut_off = error.to_string().contains("incomplete frame");
        match (&self.manifest, error.kind()) {
            _ if cut_off => ReadError::Truncated,
            (None, _) => ReadError::Foreign(Some(error)),
            (Some(_), io::ErrorKind::UnexpectedEof) => ReadError::Truncated,
            (Some(_), _) => damaged(error.to_string()),
        }
    }
}

/// Reads a large blob, and counts what was read.
struct Pieces<'a> {
    from: &'a mut dyn Read,
    digest: Sha256,
    read: u64,
    /// Why the archive could not be read: whoever takes the blob may tell it as an error of its own.
    failed: Option<io::Error>,
    checksum: &'a mut Checksum,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.from.read(buffer) {
            Ok(read) => {
                let piece = buffer.get(..read).unwrap_or_default();
                self.digest.update(piece);
                self.checksum.go_on(piece);
                self.read += read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let told = io::Error::new(error.kind(), error.to_string());
                self.failed = Some(error);
                Err(told)
            }
        }
    }
}

fn manifest(content: &[u8]) -> Result<BackupManifest, ReadError> {
    /// What every format has.
    #[derive(Deserialize)]
    struct Any {
        format: u32,
    }
    let not_one = |error: serde_json::Error| ReadError::Foreign(Some(error.into()));
    let Any { format } = serde_json::from_slice(content).map_err(not_one)?;
    if format == 0 || format > FORMAT {
        return Err(ReadError::Format { found: format });
    }
    serde_json::from_slice(content).map_err(not_one)
}
