//! The files that announce a server: their paths, the checks of owner and permissions, writing and removing.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use jiff::Timestamp;
use muster_core::names::EnvName;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::variables;

use super::find::{is_alive, read};

/// The announcement in a state directory.
pub const SERVER_FILE: &str = "server.json";
/// The default state directory of a server, in the directory where it was started.
pub const STATE_DIR: &str = ".muster";
/// State directory of the server that the package installs. Only root can create it.
const SYSTEM_STATE: &str = "/var/lib/muster";

/// Address and identity of a running server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    pub url: String,
    pub pid: i32,
    /// The environment that the server was started for, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<EnvName>,
    pub started: Timestamp,
    /// Its state directory, which distinguishes several servers.
    pub state: PathBuf,
    /// Its Unix socket, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// The file with its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
}

#[derive(Debug, Error)]
#[error("cannot write {}, which other commands use to find this server", path.display())]
pub struct AnnounceError {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// Removes the files of an announcement on drop.
#[derive(Debug)]
#[must_use = "the server can be found only while the guard lives"]
pub struct AnnouncementGuard {
    announcement: Announcement,
    files: Vec<PathBuf>,
}

/// Announces a server that listens.
///
/// A failure to write the file in the state directory is an error. Without the file in the user's directory the server is
/// still found from its own directory and with `--state`, which is only a warning.
pub fn announce(paths: &SearchPaths, announcement: Announcement) -> Result<AnnouncementGuard, AnnounceError> {
    let mut guard = AnnouncementGuard { announcement, files: Vec::new() };
    let path = guard.announcement.state.join(SERVER_FILE);
    guard.write(&path).map_err(|source| AnnounceError { path, source })?;

    let path = paths.user_dir.join(format!("{}.json", guard.announcement.pid));
    if let Err(error) = create_private_dir(&paths.user_dir).and_then(|()| guard.write(&path)) {
        let path = path.display();
        tracing::warn!(%path, %error, "other terminals cannot find this server; they can use --server");
    }
    remove_stale(&paths.user_dir);
    Ok(guard)
}

impl AnnouncementGuard {
    /// Replaces a file atomically, with mode 0600.
    fn write(&mut self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(&self.announcement)?;
        let new = path.with_extension(format!("json.{}", self.announcement.pid));
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        writeln!(file, "{text}")?;
        fs::rename(&new, path)?;
        self.files.push(path.to_owned());
        Ok(())
    }
}

impl Drop for AnnouncementGuard {
    fn drop(&mut self) {
        for path in &self.files {
            // A newer server on the same state directory may have replaced the file.
            if matches!(read(path), Ok(Some(found)) if found == self.announcement) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Removes the files of servers that were killed.
fn remove_stale(user_dir: &Path) {
    for entry in fs::read_dir(user_dir).into_iter().flatten().flatten() {
        if matches!(read(&entry.path()), Ok(Some(found)) if !is_alive(found.pid)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The directories that are searched for announcements, passed as an argument for tests.
#[derive(Clone, Debug)]
pub struct SearchPaths {
    pub current_dir: PathBuf,
    /// Announcements of all servers of the user.
    pub user_dir: PathBuf,
    /// State directory of the server of this machine, which runs as another user.
    pub system_state: PathBuf,
}

impl SearchPaths {
    /// The paths for this process and user.
    pub fn from_process() -> io::Result<Self> {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let user_dir = user_dir(variable(variables::RUNTIME_DIR), variable(variables::TEMPORARY_DIR));
        Ok(Self { current_dir: std::env::current_dir()?, user_dir, system_state: SYSTEM_STATE.into() })
    }

    /// The nearest state directory that exists and belongs to this user.
    pub(crate) fn nearest_state(&self) -> Option<PathBuf> {
        self.state_dirs().find(|state| is_own(state).unwrap_or(false))
    }

    /// The possible state directories in this and all parent directories, the nearest first.
    pub(super) fn state_dirs(&self) -> impl Iterator<Item = PathBuf> {
        self.current_dir.ancestors().map(|dir| dir.join(STATE_DIR))
    }
}

fn user_dir(runtime: Option<OsString>, temporary: Option<OsString>) -> PathBuf {
    match runtime {
        Some(dir) => Path::new(&dir).join("muster"),
        // All users can write to the temporary directory: the name has the user id, and the owner is checked.
        None => {
            let temporary = temporary.unwrap_or_else(|| "/tmp".into());
            Path::new(&temporary).join(format!("muster-{}", geteuid().as_raw()))
        }
    }
}

/// Creates the user's directory, if it does not exist.
fn create_private_dir(dir: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => check_private_dir(dir),
    }
}

/// Refuses a directory in which other users can create files.
pub(super) fn check_private_dir(dir: &Path) -> io::Result<()> {
    // Not through links: another user could have created the link.
    let found = fs::symlink_metadata(dir)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0 {
        Ok(())
    } else {
        let problem = "it is not a directory that belongs to you and that only you can write to";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
    }
}

/// True if a file belongs to this user.
pub(super) fn is_own(path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.uid() == geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_dir_is_in_the_runtime_dir_or_has_the_user_id() {
        assert_eq!(user_dir(Some("/run/user/7".into()), None), Path::new("/run/user/7/muster"));
        let uid = geteuid().as_raw();
        assert_eq!(user_dir(None, Some("/var/tmp".into())), PathBuf::from(format!("/var/tmp/muster-{uid}")));
        assert_eq!(user_dir(None, None), PathBuf::from(format!("/tmp/muster-{uid}")));
    }

    #[test]
    fn directory_writable_by_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let private = dir.path().join("muster");
        create_private_dir(&private).unwrap();
        create_private_dir(&private).unwrap();
        fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(create_private_dir(&private).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(check_private_dir(&link).is_err());
    }
}
