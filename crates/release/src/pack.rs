//! Packs a tree into a bundle. The same content gives the same bytes: entries in the order of their paths, modes 0644 and
//! 0755, owner and times zero, one fixed level and window of zstd, one thread.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use muster_core::release_dir::ContentHash;
use muster_core::release_manifest::Digest;
use thiserror::Error;

use crate::hashing::Hashing;
use crate::limits::WINDOW_LOG;
use crate::tree::{Tree, TreeFile};
use crate::unfinished::Unfinished;

/// Text shrinks to a sixth at this level, at some 50 MB in a second; higher ones cost far more than they gain. It is part of
/// the format: another level is another digest.
const LEVEL: i32 = 9;

#[derive(Debug, Error)]
pub enum PackError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} changed while it was packed; try again when nobody writes there", path.display())]
    Changed { path: PathBuf },
    #[error("cannot write the bundle")]
    Write(#[source] io::Error),
}

/// What has been packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Of the bundle.
    pub digest: Digest,
    /// Of the bundle, in bytes.
    pub size: u64,
    /// Of the tree: what [`muster_core::release_dir::digest`] says of it when it is unpacked.
    pub content: Digest,
    pub files: usize,
    /// Of the tree, in bytes.
    pub content_size: u64,
}

/// Packs a tree into a stream.
pub fn pack(tree: &Tree, to: impl Write) -> Result<Packed, PackError> {
    let mut hashing = Hashing::new(to);
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
    Ok(Packed { digest, size, content, files: tree.files().len(), content_size: tree.size() })
}

/// Packs a tree into a file of that directory, named by its digest. Nothing half is left if it fails; a file of that name
/// is replaced by itself.
pub fn pack_into(tree: &Tree, directory: &Path) -> Result<(PathBuf, Packed), PackError> {
    fs::create_dir_all(directory).map_err(PackError::Write)?;
    let unfinished = Unfinished::beside(directory, "bundle");
    let mut file = BufWriter::new(File::create_new(unfinished.path()).map_err(PackError::Write)?);
    let packed = pack(tree, &mut file)?;
    let file = file.into_inner().map_err(|error| PackError::Write(error.into_error()))?;
    file.sync_all().map_err(PackError::Write)?;
    let path = directory.join(file_name(&packed.digest));
    unfinished.rename_to(&path).map_err(PackError::Write)?;
    Ok((path, packed))
}

/// What the file of a bundle is called.
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
    let mut reading = Reading { inner: opened.take(file.size), content, left: file.size, failed: None };
    let appended = tar.append_data(&mut header, path, &mut reading);
    let Reading { inner, left, failed: read_error, .. } = reading;
    if let Some(error) = read_error {
        return Err(failed(error));
    }
    appended.map_err(PackError::Write)?;
    let more = inner.into_inner().read(&mut [0]).map_err(failed)?;
    if left == 0 && more == 0 { Ok(()) } else { Err(PackError::Changed { path: file.source.clone() }) }
}

/// Hashes a file on its way into the bundle, and remembers whether it was the reading that failed.
struct Reading<'c> {
    inner: io::Take<File>,
    content: &'c mut ContentHash,
    left: u64,
    failed: Option<io::Error>,
}

impl Read for Reading<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Ok(read) => {
                self.content.add(buffer.get(..read).unwrap_or_default());
                self.left -= read as u64;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let told = io::Error::new(error.kind(), "the file cannot be read");
                self.failed = Some(error);
                Err(told)
            }
        }
    }
}
