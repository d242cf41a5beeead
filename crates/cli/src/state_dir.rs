//! The directory in which a server of this machine keeps its state.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::discovery::STATE_DIR;

#[derive(Debug, Error)]
#[error("cannot use {} for the state", path.display())]
pub(crate) struct StateDirError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The state directory that was chosen, or the one of the current directory; made if it is not there.
pub(crate) fn state_dir(chosen: Option<&Path>) -> Result<PathBuf, StateDirError> {
    let path = chosen.unwrap_or(Path::new(STATE_DIR)).to_owned();
    let made = std::fs::create_dir_all(&path).and_then(|()| path.canonicalize());
    made.map_err(|source| StateDirError { path, source })
}

/// Where a server keeps its blobs, unless it is told otherwise.
pub(crate) fn blobs_in(state: &Path) -> PathBuf {
    state.join("blobs")
}
