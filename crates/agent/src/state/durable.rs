//! Atomic and durable file writes: temporary file, fsync, rename, fsync of the directory.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Only the agent's user may read its state: data and reports may contain secrets.
const PRIVATE: u32 = 0o600;

#[derive(Debug, Error)]
pub enum StateWriteError {
    #[error("cannot write {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot encode {path} as JSON")]
    Json {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

impl StateWriteError {
    /// The error and its cause in one line, for operators.
    pub fn in_one_line(&self) -> String {
        match self {
            StateWriteError::Io { path, source } => format!("cannot write {}: {source}", path.display()),
            StateWriteError::Json { path, source } => format!("cannot encode {} as JSON: {source}", path.display()),
        }
    }
}

/// Replaces a file durably. On an error the old content is still there.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), StateWriteError> {
    replace(path, bytes)?;
    sync_directory(directory_of(path)).map_err(|source| StateWriteError::Io { path: path.to_owned(), source })
}

/// Replaces a file atomically. After a power failure it has the old or the new content; the new one is certain only after
/// the next [`write`] in the same directory.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), StateWriteError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let written = (|| {
        let mut file = File::options().write(true).create(true).truncate(true).mode(PRIVATE).open(&temporary)?;
        // A crash may have left a temporary file with other permissions.
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // On a full disk an incomplete file would use the space that other files need.
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(|source| StateWriteError::Io { path: path.to_owned(), source })
}

fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

pub fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), StateWriteError> {
    write(path, &json(path, value)?)
}

pub fn replace_json(path: &Path, value: &impl serde::Serialize) -> Result<(), StateWriteError> {
    replace(path, &json(path, value)?)
}

fn json(path: &Path, value: &impl serde::Serialize) -> Result<Vec<u8>, StateWriteError> {
    serde_json::to_vec(value).map_err(|source| StateWriteError::Json { path: path.to_owned(), source })
}

/// Makes the created, renamed and removed names of a directory durable.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Renames a damaged file to `<name>.broken`, for debugging.
pub fn move_aside(path: &Path) -> io::Result<PathBuf> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".broken");
    let aside = PathBuf::from(aside);
    fs::rename(path, &aside)?;
    sync_directory(directory_of(path))?;
    Ok(aside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_replaces_the_file_and_leaves_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn written_file_is_private_also_after_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.tmp"), "half").unwrap();
        for name in ["a", "b"] {
            let path = dir.path().join(name);
            write(&path, b"secret").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE, "{name}");
        }
    }

    #[test]
    fn write_error_names_the_file() {
        let error = write(Path::new("/nonexistent/a"), b"").unwrap_err();
        assert_eq!(error.in_one_line(), "cannot write /nonexistent/a: No such file or directory (os error 2)");
    }
}
