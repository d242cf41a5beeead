//! Files that are whole or not there, also after the power went: temporary file, fsync, rename, fsync of the directory.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// For nobody but the agent's own user: what it was told, and what it reports, may be secret.
const PRIVATE: u32 = 0o600;

#[derive(Debug, Error)]
pub enum WriteError {
    #[error("cannot write {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot put {path} into JSON")]
    Json {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

impl WriteError {
    /// What happened in one line, for the operator's screen.
    pub fn in_one_line(&self) -> String {
        match self {
            WriteError::Io { path, source } => format!("cannot write {}: {source}", path.display()),
            WriteError::Json { path, source } => format!("cannot put {} into JSON: {source}", path.display()),
        }
    }
}

/// Replaces a file. When this returns, the new content survives a power cut; when it fails, the old one is still there.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    replace(path, bytes)?;
    sync_directory(directory_of(path)).map_err(|source| WriteError::Io { path: path.to_owned(), source })
}

/// Replaces a file. After a power cut there is the old content or the new one, whole; the new one for certain only after
/// the next [`write`] in the same directory.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let written = (|| {
        let mut file = File::options().write(true).create(true).truncate(true).mode(PRIVATE).open(&temporary)?;
        // A crash may have left one that anybody can read.
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // On a full disk the half of a file would hold the space that others need.
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(|source| WriteError::Io { path: path.to_owned(), source })
}

fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

pub fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), WriteError> {
    write(path, &json(path, value)?)
}

pub fn replace_json(path: &Path, value: &impl serde::Serialize) -> Result<(), WriteError> {
    replace(path, &json(path, value)?)
}

fn json(path: &Path, value: &impl serde::Serialize) -> Result<Vec<u8>, WriteError> {
    serde_json::to_vec(value).map_err(|source| WriteError::Json { path: path.to_owned(), source })
}

/// Makes names that were created, renamed or removed in a directory survive a power cut.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Moves a file that cannot be understood out of the way, and keeps it for whoever wants to know why.
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
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn nobody_else_can_read_it_whatever_was_left_there() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.tmp"), "half").unwrap();
        for name in ["a", "b"] {
            let path = dir.path().join(name);
            write(&path, b"secret").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE, "{name}");
        }
    }

    #[test]
    fn a_failure_names_the_file() {
        let error = write(Path::new("/nonexistent/a"), b"").unwrap_err();
        assert_eq!(error.in_one_line(), "cannot write /nonexistent/a: No such file or directory (os error 2)");
    }
}
