//! Verifies a bundle and unpacks it: first its digest, then each entry, then the digest of the content.
//! A failure removes everything that was unpacked.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use muster_core::release::dir::{self, ReadReleaseError};
use muster_core::release::manifest::{Digest, Manifest};
use thiserror::Error;

use crate::entries::{Entry, EntryError, EntryKind, VisitError, visit};
use crate::hashing::digest_of;
use crate::limits::BUNDLE_LIMIT;
use crate::temp_path::TempPath;

/// Differences between a bundle and its manifest.
#[derive(Debug, Error)]
pub enum BundleError {
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
    Bundle(#[from] BundleError),
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

/// Verifies the size and the digest of a bundle. Reads the whole file.
pub fn verify_bundle(bundle: &Path, manifest: &Manifest) -> Result<(), BundleError> {
    open_verified(bundle, manifest).map(drop)
}

fn open_verified(bundle: &Path, manifest: &Manifest) -> Result<File, BundleError> {
    let failed = |source| BundleError::Read { path: bundle.to_owned(), source };
    let mut file = File::open(bundle).map_err(failed)?;
    let found = file.metadata().map_err(failed)?.len();
    if found != manifest.size || found > BUNDLE_LIMIT {
        return Err(BundleError::Size { expected: manifest.size.min(BUNDLE_LIMIT), found });
    }
    let (digest, _) = digest_of(&mut file).map_err(failed)?;
    if digest != manifest.digest {
        return Err(BundleError::Digest { expected: manifest.digest.clone(), found: digest });
    }
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    Ok(file)
}

/// Verifies a bundle and unpacks it into `target`, which must not exist and is removed on failure.
///
/// The caller verifies the manifest: see [`crate::manifest`].
pub fn unpack(bundle: &Path, manifest: &Manifest, target: &Path) -> Result<(), UnpackError> {
    let file = open_verified(bundle, manifest)?;
    create_directory(target)?;
    let unpacked = TempPath::new(target);
    let visited = visit(BufReader::new(file), |entry, content| write_entry(target, entry, content));
    visited.map_err(|error| match error {
        VisitError::Bundle(error) => UnpackError::Entry(error),
        VisitError::Visitor(error) => error,
    })?;
    let found = dir::digest(target)?;
    if found != manifest.content.as_str() {
        return Err(UnpackError::Content { expected: manifest.content.clone(), found });
    }
    unpacked.keep();
    Ok(())
}

/// Writes one entry. Its path was checked: it stays inside `target` and contains no links.
fn write_entry(target: &Path, entry: &Entry, content: &mut dyn Read) -> Result<(), UnpackError> {
    let path = target.join(&entry.path);
    let failed = |source| UnpackError::Write { path: path.clone(), source };
    let directory = match entry.kind {
        EntryKind::Directory => Some(path.as_path()),
        EntryKind::File { .. } => path.parent(),
    };
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o755).create(directory.unwrap_or(target)).map_err(failed)?;
    match entry.kind {
        EntryKind::Directory => Ok(()),
        EntryKind::File { executable, .. } => {
            let mode = if executable { 0o755 } else { 0o644 };
            let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path).map_err(failed)?;
            io::copy(content, &mut file).map_err(failed)?;
            // Independent of the umask: the executable bit is part of the content's digest.
            file.set_permissions(fs::Permissions::from_mode(mode)).map_err(failed)
        }
    }
}

fn create_directory(target: &Path) -> Result<(), UnpackError> {
    let made = DirBuilder::new().mode(0o755).create(target);
    made.map_err(|source| UnpackError::Write { path: target.to_owned(), source })
}
