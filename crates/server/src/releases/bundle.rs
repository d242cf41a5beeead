//! Verifies that a bundle matches its manifest and holds a release that nodes can run.

use std::io;
use std::sync::Arc;

use muster_core::release::manifest::{Digest, Manifest};
use muster_release::bundle::UnpackError;
use muster_release::check::CheckError;
use thiserror::Error;

use crate::blobs::{BlobReader, Blobs};

#[derive(Debug, Error)]
pub enum BundleError {
    #[error("there is no bundle {digest}")]
    Missing { digest: Digest },
    #[error("the bundle does not match its manifest")]
    Unpack(#[source] UnpackError),
    #[error("no node could run it")]
    Check(#[source] CheckError),
    #[error("the bundle cannot be examined")]
    Io(#[source] io::Error),
}

/// Verifies a bundle and checks its content. Blocks.
pub(super) fn examine(blobs: &Blobs, manifest: &Manifest) -> Result<(), BundleError> {
    with_unpacked(blobs, manifest, |tree| muster_release::check_directory(tree).map_err(BundleError::Check).map(drop))
}

/// Verifies a bundle, unpacks it into a temporary directory, and calls `work` with it. Blocks.
pub(crate) fn with_unpacked<T>(
    blobs: &Blobs,
    manifest: &Manifest,
    work: impl FnOnce(&std::path::Path) -> Result<T, BundleError>,
) -> Result<T, BundleError> {
    let digest = &manifest.digest;
    // Renewed, so that it is not swept before it is registered.
    let there = blobs.renew(digest.hex()).map_err(BundleError::Io)?;
    let stored = if there { blobs.stored(digest.hex()).map_err(BundleError::Io)? } else { None };
    let Some(stored) = stored else { return Err(BundleError::Missing { digest: digest.clone() }) };
    let place = blobs.workspace().map_err(BundleError::Io)?;
    let file = place.path().join("bundle");
    copy(stored.into(), &file).map_err(BundleError::Io)?;
    let tree = place.path().join("tree");
    muster_release::unpack(&file, manifest, &tree).map_err(BundleError::Unpack)?;
    work(&tree)
}

/// Copies a blob into a file, which unpacking needs.
fn copy(stored: Arc<dyn BlobReader>, to: &std::path::Path) -> io::Result<()> {
    let mut file = std::fs::File::create_new(to)?;
    let mut piece = vec![0; crate::blobs::downloads::PIECE];
    let mut place = 0;
    loop {
        let read = stored.read_at(&mut piece, place)?;
        if read == 0 {
            return Ok(());
        }
        io::Write::write_all(&mut file, piece.get(..read).unwrap_or_default())?;
        place += read as u64;
    }
}
