//! The server's side: saying where it is.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::find::{is_alive, read};
use super::places::{Places, SERVER_FILE, make_private_dir};
use super::{Announced, find};

#[derive(Debug, Error)]
#[error("cannot write {}, by which other commands find this server", path.display())]
pub struct AnnounceError {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// A server that can be found for as long as this lives.
#[derive(Debug)]
#[must_use = "the server can be found only for as long as the announcement lives"]
pub struct Announcement {
    announced: Announced,
    files: Vec<PathBuf>,
}

/// Announces a server that listens.
///
/// Without its file in the state directory that is an error. Without the one in the user's directory the server is
/// still found from its own directory and with `--state`, so that is a warning only.
pub fn announce(places: &Places, announced: Announced) -> Result<Announcement, AnnounceError> {
    let mut announcement = Announcement { announced, files: Vec::new() };
    let path = announcement.announced.state.join(SERVER_FILE);
    announcement.write(&path).map_err(|source| AnnounceError { path, source })?;

    let path = places.user_dir.join(format!("{}.json", announcement.announced.pid));
    if let Err(error) = make_private_dir(&places.user_dir).and_then(|()| announcement.write(&path)) {
        let path = path.display();
        tracing::warn!(%path, %error, "other terminals will not find this server by itself; they can use --server");
    }
    sweep(&places.user_dir);
    Ok(announcement)
}

impl Announcement {
    /// Writes the file whole or not at all, readable for the user only.
    fn write(&mut self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(&self.announced)?;
        let new = path.with_extension(format!("json.{}", self.announced.pid));
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        writeln!(file, "{text}")?;
        fs::rename(&new, path)?;
        self.files.push(path.to_owned());
        Ok(())
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        for path in &self.files {
            // Another server may have begun on the same state meanwhile: then the file is not ours any more.
            if matches!(find::read(path), Ok(Some(found)) if found == self.announced) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Takes away what servers left that were killed.
fn sweep(user_dir: &Path) {
    for entry in fs::read_dir(user_dir).into_iter().flatten().flatten() {
        if matches!(read(&entry.path()), Ok(Some(found)) if !is_alive(found.pid)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
