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
    let attempt = || {
        let mut file = File::options().write(true).create(true).truncate(true).mode(PRIVATE).open(&temporary)?;
        // A crash may have left a temporary file with other permissions.
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    let mut written = attempt();
    if written.is_err() && [&temporary, path].map(repair_directory).contains(&true) {
        written = attempt();
    }
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

/// Renames a damaged file, or a directory in its place, to `<name>.broken`, for debugging.
pub fn move_aside(path: &Path) -> io::Result<PathBuf> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".broken");
    let aside = rename_past_directories(path, Path::new(&aside))?;
    sync_directory(directory_of(path))?;
    Ok(aside)
}

/// Moves a directory in place of a file aside. True if there was one.
pub fn repair_directory(path: &Path) -> bool {
    if !fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        return false;
    }
    match move_aside(path) {
        Ok(aside) => {
            tracing::error!(path = %path.display(), kept = %aside.display(), "moved a directory in place of a state file aside");
            true
        }
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "cannot move a directory in place of a state file aside");
            false
        }
    }
}

/// Renames a file or directory. A file at the target is replaced. If a rename fails because of a directory, at either
/// place, the name gets a number.
pub fn rename_past_directories(from: &Path, target: &Path) -> io::Result<PathBuf> {
    let mut to = target.to_owned();
    let mut number = 0;
    loop {
        match fs::rename(from, &to) {
            Ok(()) => return Ok(to),
            Err(error) if number < MAX_NUMBER && is_name_taken(&error) => {
                number += 1;
                let mut name = target.as_os_str().to_owned();
                name.push(format!("-{number}"));
                to = name.into();
            }
            Err(error) => return Err(error),
        }
    }
}

/// Highest number of a name.
const MAX_NUMBER: u32 = 99;

fn is_name_taken(error: &io::Error) -> bool {
    let kinds = [io::ErrorKind::IsADirectory, io::ErrorKind::NotADirectory, io::ErrorKind::DirectoryNotEmpty];
    kinds.contains(&error.kind())
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
    fn directories_in_place_of_files_are_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for round in 0..3 {
            for name in ["a/deep", "a.tmp/deep"] {
                fs::create_dir_all(dir.path().join(name)).unwrap();
            }
            write(&path, b"one").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"one");
            fs::remove_file(&path).unwrap();
            let kept = if round == 0 { "a.broken".to_owned() } else { format!("a.broken-{round}") };
            assert!(dir.path().join(&kept).join("deep").is_dir(), "{kept}");
        }
    }

    #[test]
    fn write_error_names_the_file() {
        let error = write(Path::new("/nonexistent/a"), b"").unwrap_err();
        assert_eq!(error.in_one_line(), "cannot write /nonexistent/a: No such file or directory (os error 2)");
    }
}
