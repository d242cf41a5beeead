//! Writes and removes the files that announce a server.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use muster_core::names::EnvName;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::find::{is_alive, read};
use super::places::{SERVER_FILE, SearchPaths, create_private_dir};

/// Address and identity of a running server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    pub url: String,
    pub pid: i32,
    /// The environment that the server was started for, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<EnvName>,
    pub started: Timestamp,
    /// Its state directory, which tells several servers apart.
    pub state: PathBuf,
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
