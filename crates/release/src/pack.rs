//! Packs a tree into a bundle. Packing is reproducible: entries in the order of their paths, modes 0644 and 0755, owner
//! and times zero, a fixed level and window of zstd, one thread.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use muster_core::release::dir::ContentHash;
use muster_core::release::manifest::Digest;
use thiserror::Error;

use crate::hashing::HashStream;
use crate::limits::WINDOW_LOG;
use crate::temp_path::TempPath;
use crate::tree::{Tree, TreeFile};

/// Text shrinks to a sixth at this level, at about 50 MB per second; higher levels cost far more than they gain. The level
/// is part of the format: another level gives another digest.
const LEVEL: i32 = 9;

#[derive(Debug, Error)]
pub enum PackError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} changed while it was packed: retry when no process writes to it", path.display())]
    Changed { path: PathBuf },
    #[error("cannot write the bundle")]
    Write(#[source] io::Error),
}

/// Digests and sizes of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleInfo {
    /// Digest of the bundle.
    pub digest: Digest,
    /// Size of the bundle, in bytes.
    pub size: u64,
    /// Digest of the files, as [`muster_core::release::dir::digest`] computes it after unpacking.
    pub content: Digest,
    pub files: usize,
    /// Total size of the files, in bytes.
    pub content_size: u64,
}

/// Packs a tree into a stream.
pub fn pack(tree: &Tree, to: impl Write) -> Result<BundleInfo, PackError> {
    let mut hashing = HashStream::new(to);
    let mut content = ContentHash::default();
    let mut zstd = zstd::Encoder::new(&mut hashing, LEVEL).map_err(PackError::Write)?;
    zstd.window_log(WINDOW_LOG).and_then(|()| zstd.include_checksum(true)).map_err(PackError::Write)?;
    let mut tar = tar::Builder::new(zstd);
    for (path, file) in tree.files() {
        append(&mut tar, &mut content, path, file)?;
    }
    let finished = tar.into_inner().and_then(zstd::Encoder::finish).and_then(Write::flush);
    finished.map_err(PackError::Write)?;
    let (_, digest, size) = hashing.finish();
    let content = content.finish();
    Ok(BundleInfo { digest, size, content, files: tree.files().len(), content_size: tree.size() })
}

/// Packs a tree into a file of the directory, named by its digest. A failure leaves no partial file; an existing file of
/// the same name is replaced by the same content.
pub fn pack_into(tree: &Tree, directory: &Path) -> Result<(PathBuf, BundleInfo), PackError> {
    fs::create_dir_all(directory).map_err(PackError::Write)?;
    let temporary = TempPath::in_dir(directory, "bundle");
    let mut file = BufWriter::new(File::create_new(temporary.path()).map_err(PackError::Write)?);
    let packed = pack(tree, &mut file)?;
    let file = file.into_inner().map_err(|error| PackError::Write(error.into_error()))?;
    file.sync_all().map_err(PackError::Write)?;
    let path = directory.join(file_name(&packed.digest));
    temporary.rename_to(&path).map_err(PackError::Write)?;
    Ok((path, packed))
}

/// File name of a bundle.
pub fn file_name(digest: &Digest) -> String {
    format!("sha256-{}.tar.zst", digest.hex())
}

fn append<W: Write>(
    tar: &mut tar::Builder<W>,
    content: &mut ContentHash,
    path: &str,
    file: &TreeFile,
) -> Result<(), PackError> {
    let failed = |source| PackError::Read { path: file.source.clone(), source };
    let opened = File::open(&file.source).map_err(failed)?;
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(if file.executable { 0o755 } else { 0o644 });
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(file.size);
    content.begin(path, file.executable, file.size);
    let mut reading = HashingReader { inner: opened.take(file.size), content, left: file.size, failed: None };
    let appended = tar.append_data(&mut header, path, &mut reading);
    let HashingReader { inner, left, failed: read_error, .. } = reading;
    if let Some(error) = read_error {
        return Err(failed(error));
    }
    appended.map_err(PackError::Write)?;
    let more = inner.into_inner().read(&mut [0]).map_err(failed)?;
    if left == 0 && more == 0 { Ok(()) } else { Err(PackError::Changed { path: file.source.clone() }) }
}

/// Hashes a file while it is packed, and keeps a read error to tell it from a write error.
struct HashingReader<'c> {
    inner: io::Take<File>,
    content: &'c mut ContentHash,
    left: u64,
    failed: Option<io::Error>,
}

impl Read for HashingReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Ok(read) => {
                self.content.add(buffer.get(..read).unwrap_or_default());
                self.left -= read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let read_error = io::Error::new(error.kind(), "the file cannot be read");
                self.failed = Some(error);
                Err(read_error)
            }
        }
    }
}
