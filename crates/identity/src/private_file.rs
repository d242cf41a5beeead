//! Files with private keys: mode 0600, written as a whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

#[derive(Debug, Error)]
pub enum PrivateFileError {
    #[error("cannot read {}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "other users can read the private key {} (mode {mode:03o}): replace the key if that was so for long, and run \
         `chmod 600 {}`", path.display(), path.display()
    )]
    NotPrivate { path: PathBuf, mode: u32 },
}

/// Reads a file that other users must not be able to read.
pub fn read(path: &Path) -> Result<String, PrivateFileError> {
    let failed = |source| PrivateFileError::Io { path: path.to_owned(), source };
    let mode = fs::metadata(path).map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(PrivateFileError::NotPrivate { path: path.to_owned(), mode });
    }
    fs::read_to_string(path).map_err(failed)
}

/// Replaces a file. It has mode 0600, and survives a power failure either as it was or as it is.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(directory)?.sync_all()
}
