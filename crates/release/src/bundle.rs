//! Packs a tree into a bundle, and unpacks a bundle into a directory.
//!
//! - Packing is reproducible: entries in the order of their paths, modes 0644 and 0755, owner and times zero, a fixed level
//!   and window of zstd, one thread.
//! - Unpacking verifies first the digest of the bundle, then each entry, then the digest of the content. A failure removes
//!   everything that was unpacked.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use muster_core::release::dir::{self, ContentHash, ReadReleaseError};
use muster_core::release::manifest::{Digest, Manifest};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::entries::{BundleEntry, EntryError, EntryKind, VisitError, visit};
use crate::temp_path::TempPath;
use crate::tree::{BUNDLE_LIMIT, ReleaseTree, TreeFile, WINDOW_LOG};

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
pub fn pack(tree: &ReleaseTree, to: impl Write) -> Result<BundleInfo, PackError> {
    let mut hashing = HashStream::new(to);
    let mut content = ContentHash::default();
    let mut tar = tar::Builder::new(compressor(&mut hashing).map_err(PackError::Write)?);
    for (path, file) in tree.files() {
        append(&mut tar, &mut content, path, file)?;
    }
    let finished = tar.into_inner().and_then(zstd::Encoder::finish).and_then(Write::flush);
    finished.map_err(PackError::Write)?;
    let (_, digest, size) = hashing.finish();
    let content = content.finish();
    Ok(BundleInfo { digest, size, content, files: tree.files().len(), content_size: tree.size() })
}

/// Compresses a bundle, or a delta between two.
pub(crate) fn compressor<W: Write>(to: W) -> io::Result<zstd::Encoder<'static, W>> {
    let mut zstd = zstd::Encoder::new(to, LEVEL)?;
    zstd.window_log(WINDOW_LOG).and_then(|()| zstd.include_checksum(true))?;
    Ok(zstd)
}

/// Packs a tree into a file of the directory, named by its digest. A failure leaves no partial file; an existing file of
/// the same name is replaced by the same content.
pub fn pack_into(tree: &ReleaseTree, directory: &Path) -> Result<(PathBuf, BundleInfo), PackError> {
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
    content.begin(path, file.executable, file.size);
    let mut reading = HashingReader { inner: opened.take(file.size), content, left: file.size, failed: None };
    let appended = add_file(tar, path, file.executable, file.size, &mut reading);
    let HashingReader { inner, left, failed: read_error, .. } = reading;
    if let Some(error) = read_error {
        return Err(failed(error));
    }
    appended.map_err(PackError::Write)?;
    let more = inner.into_inner().read(&mut [0]).map_err(failed)?;
    if left == 0 && more == 0 { Ok(()) } else { Err(PackError::Changed { path: file.source.clone() }) }
}

/// Appends a file with the properties of all files of a bundle.
pub(crate) fn add_file<W: Write>(
    tar: &mut tar::Builder<W>,
    path: &str,
    executable: bool,
    size: u64,
    content: impl Read,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(if executable { 0o755 } else { 0o644 });
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    tar.append_data(&mut header, path, content)
}

/// Hashes a file while it is packed, and keeps a read error apart from a write error.
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

/// Differences between a bundle and its manifest.
#[derive(Debug, Error)]
pub enum OpenBundleError {
    #[error("cannot read the bundle {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the bundle has {found} bytes, and its manifest requires {expected}")]
    Size { expected: u64, found: u64 },
    #[error("the bundle is not the one that was signed: its digest is {found}, and the manifest requires {expected}")]
    Digest { expected: Digest, found: Digest },
}

#[derive(Debug, Error)]
pub enum UnpackError {
    #[error(transparent)]
    Bundle(#[from] OpenBundleError),
    #[error(transparent)]
    Entry(#[from] EntryError),
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot read the unpacked files")]
    ReadBack(#[from] ReadReleaseError),
    #[error(
        "the unpacked files are not those that were signed: their digest is {found}, and the manifest requires {expected}"
    )]
    Content { expected: Digest, found: String },
}

/// Verifies the size and the digest of a bundle. Reads the complete file.
pub fn verify_bundle(bundle: &Path, manifest: &Manifest) -> Result<(), OpenBundleError> {
    open_verified(bundle, manifest).map(drop)
}

fn open_verified(bundle: &Path, manifest: &Manifest) -> Result<File, OpenBundleError> {
    let failed = |source| OpenBundleError::Read { path: bundle.to_owned(), source };
    let mut file = File::open(bundle).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    verify_stream(&mut file, size, bundle, manifest)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    Ok(file)
}

/// Verifies a stream of this size; `path` names it in messages.
fn verify_stream(from: impl Read, size: u64, path: &Path, manifest: &Manifest) -> Result<(), OpenBundleError> {
    if size != manifest.size || size > BUNDLE_LIMIT {
        return Err(OpenBundleError::Size { expected: manifest.size.min(BUNDLE_LIMIT), found: size });
    }
    let (digest, _) = digest_of(from).map_err(|source| OpenBundleError::Read { path: path.to_owned(), source })?;
    if digest != manifest.digest {
        return Err(OpenBundleError::Digest { expected: manifest.digest.clone(), found: digest });
    }
    Ok(())
}

/// The files of a bundle that was verified without unpacking it.
#[derive(Debug, Default)]
pub(crate) struct BundleIndex {
    /// Paths with their executable bits.
    pub files: BTreeMap<String, bool>,
    /// The first bytes of the file that was asked for, if the bundle has it.
    pub head: Option<Vec<u8>>,
}

/// Verifies a bundle as [`unpack`] does, and writes nothing: the cost is that of reading it. `open` starts at its first byte.
/// `head_of` names a file whose first `head_size` bytes are kept.
///
/// The digest of the content is computed in the order of the entries. Only the order of [`pack()`] is accepted.
pub(crate) fn index<R: Read>(
    open: impl Fn() -> R,
    size: u64,
    manifest: &Manifest,
    head_of: &str,
    head_size: u64,
) -> Result<BundleIndex, UnpackError> {
    verify_stream(open(), size, Path::new(&file_name(&manifest.digest)), manifest)?;
    let mut index = BundleIndex::default();
    let mut content = ContentHash::default();
    let mut buffer = vec![0; 64 * 1024];
    let visited = visit(BufReader::new(open()), manifest.content_size, |entry, from| {
        let EntryKind::File { executable, size } = entry.kind else { return Ok(()) };
        if index.files.last_key_value().is_some_and(|(last, _)| *last >= entry.path) {
            return Err(EntryError::OutOfOrder { entry: entry.path.clone() });
        }
        index.files.insert(entry.path.clone(), executable);
        content.begin(&entry.path, executable, size);
        let mut head = (entry.path == head_of).then(Vec::new);
        loop {
            let read = match from.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(EntryError::Damaged)?,
            };
            let piece = buffer.get(..read).unwrap_or_default();
            if piece.is_empty() {
                break;
            }
            content.add(piece);
            if let Some(head) = &mut head {
                let missing = usize::try_from(head_size).unwrap_or(usize::MAX).saturating_sub(head.len());
                head.extend_from_slice(piece.get(..missing).unwrap_or(piece));
            }
        }
        index.head = head.or(index.head.take());
        Ok(())
    });
    visited.map_err(|error| match error {
        VisitError::Bundle(error) | VisitError::Visitor(error) => error,
    })?;
    let found = content.finish();
    if found != manifest.content {
        return Err(UnpackError::Content { expected: manifest.content.clone(), found: found.into() });
    }
    Ok(index)
}

/// Verifies a bundle and unpacks it into `target`, which must not exist and is removed on failure.
///
/// The caller verifies the manifest: see [`crate::manifest`].
pub fn unpack(bundle: &Path, manifest: &Manifest, target: &Path) -> Result<(), UnpackError> {
    let file = open_verified(bundle, manifest)?;
    create_directory(target)?;
    let unpacked = TempPath::new(target);
    let visited =
        visit(BufReader::new(file), manifest.content_size, |entry, content| write_entry(target, entry, content));
    visited.map_err(|error| match error {
        VisitError::Bundle(error) => UnpackError::Entry(error),
        VisitError::Visitor(error) => error,
    })?;
    verify_unpacked(target, manifest)?;
    unpacked.keep();
    Ok(())
}

/// Compares the digest of unpacked files with the manifest.
pub(crate) fn verify_unpacked(target: &Path, manifest: &Manifest) -> Result<(), UnpackError> {
    let found = dir::digest(target)?;
    if found == manifest.content.as_str() {
        return Ok(());
    }
    Err(UnpackError::Content { expected: manifest.content.clone(), found })
}

/// Writes one entry. Its path was checked: it stays inside `target` and contains no links.
pub(crate) fn write_entry(target: &Path, entry: &BundleEntry, content: &mut dyn Read) -> Result<(), UnpackError> {
    let path = target.join(&entry.path);
    let failed = |source| UnpackError::Write { path: path.clone(), source };
    match entry.kind {
        EntryKind::Directory => create_directories(&path),
        EntryKind::File { executable, .. } => {
            create_parent(&path)?;
            let mode = if executable { 0o755 } else { 0o644 };
            let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path).map_err(failed)?;
            io::copy(content, &mut file).map_err(failed)?;
            // Independent of the umask: the executable bit is part of the content's digest.
            file.set_permissions(fs::Permissions::from_mode(mode)).map_err(failed)
        }
    }
}

/// Creates the directory of a file.
pub(crate) fn create_parent(path: &Path) -> Result<(), UnpackError> {
    create_directories(path.parent().unwrap_or(path))
}

fn create_directories(path: &Path) -> Result<(), UnpackError> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
    made.map_err(|source| UnpackError::Write { path: path.to_owned(), source })
}

pub(crate) fn create_directory(target: &Path) -> Result<(), UnpackError> {
    let made = DirBuilder::new().mode(0o755).create(target);
    made.map_err(|source| UnpackError::Write { path: target.to_owned(), source })
}
