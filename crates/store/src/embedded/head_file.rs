//! Remembers the highest revision of a store, in a small file beside it: `PATH.revision`.
//!
//! A store with a lower revision than the remembered one went back: it is an older copy, or it was deleted and created again.
//! Opening it fails.
//!
//! The file is written when the store is opened, every [`INTERVAL`] if there are new revisions, and when the store is closed.
//! Commits do not wait for it. The remembered revision is therefore always durable in the store, and after a crash it is at
//! most [`INTERVAL`] old: an older copy from within that time is not noticed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval of writes while there are new revisions: one fsync in 5 seconds, beside hundreds of a busy store.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);

const CLOSED: &str = "closed";
const OPEN: &str = "open";

/// Content of the file: two lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RememberedHead {
    pub(super) revision: u64,
    /// The store was closed at this revision. Otherwise its process was killed, or runs.
    pub(super) closed: bool,
}

impl RememberedHead {
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let revision = lines.next()?.parse().ok()?;
        match lines.next()? {
            CLOSED => Some(Self { revision, closed: true }),
            OPEN => Some(Self { revision, closed: false }),
            _ => None,
        }
    }
}

/// The file of a store.
#[derive(Debug)]
pub(super) struct HeadFile {
    path: PathBuf,
    state: Mutex<HeadState>,
}

/// State that decides which writes are obsolete.
#[derive(Debug, Default)]
struct HeadState {
    on_disk: Option<RememberedHead>,
    /// Revision of the store when it was opened.
    opened_at: u64,
    closed: bool,
}

impl HeadFile {
    pub(super) fn new(store: &Path) -> Self {
        let mut path = store.as_os_str().to_owned();
        path.push(".revision");
        Self { path: path.into(), state: Mutex::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The remembered state; none if there is no file. The error kind of a damaged file is `InvalidData`: writes replace it
    /// as a whole, so no crash leaves an incomplete one.
    pub(super) fn read(&self) -> io::Result<Option<RememberedHead>> {
        let found = match fs::read_to_string(&self.path) {
            Ok(text) => RememberedHead::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into()).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        // Any store may be older than one whose revision is unknown: only a restore replaces a damaged file.
        let unknown = Some(RememberedHead { revision: u64::MAX, closed: false });
        self.state().on_disk = found.as_ref().map_or(unknown, |found| *found);
        found
    }

    /// Remembers that the store was opened at a revision.
    pub(super) fn opened(&self, revision: u64) {
        self.state().opened_at = revision;
        self.remember(RememberedHead { revision, closed: false });
    }

    /// Remembers a durable revision of the open store.
    pub(super) fn reached(&self, revision: u64) {
        self.remember(RememberedHead { revision, closed: false });
    }

    /// Remembers the last revision of the store.
    pub(super) fn closed(&self, revision: u64) {
        self.remember(RememberedHead { revision, closed: true });
        self.state().closed = true;
    }

    /// A failure is logged: the store works without the file.
    fn remember(&self, now: RememberedHead) {
        let mut state = self.state();
        // A store that went back was opened for a restore. Until the restore has written, the store stays refused.
        let is_lower = state.on_disk.is_some_and(|known| known.revision > now.revision);
        let is_restored = now.closed && now.revision > state.opened_at;
        if state.closed || state.on_disk == Some(now) || (is_lower && !is_restored) {
            return;
        }
        match self.write(now) {
            Ok(()) => state.on_disk = Some(now),
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(), "the revision of the store cannot be remembered");
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, HeadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, RememberedHead { revision, closed }: RememberedHead) -> io::Result<()> {
        let mut draft = self.path.as_os_str().to_owned();
        draft.push(".new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(format!("{revision}\n{}\n", if closed { CLOSED } else { OPEN }).as_bytes())?;
        file.sync_data()?;
        fs::rename(&draft, &self.path)?;
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
            _ => File::open(".")?.sync_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn head_file(directory: &tempfile::TempDir) -> HeadFile {
        HeadFile::new(&directory.path().join("store"))
    }

    #[test]
    fn closed_state_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let file = head_file(&directory);
        assert_eq!(file.read().unwrap(), None);
        file.opened(7);
        assert_eq!(file.read().unwrap(), Some(RememberedHead { revision: 7, closed: false }));
        file.closed(9);
        file.reached(10);
        assert_eq!(file.read().unwrap(), Some(RememberedHead { revision: 9, closed: true }));
    }

    #[test]
    fn remembered_revision_decreases_only_after_a_restore() {
        let directory = tempfile::tempdir().unwrap();
        head_file(&directory).opened(100);
        for (last, remembered) in [(5, 100), (8, 8)] {
            let file = head_file(&directory);
            file.read().unwrap();
            file.opened(5);
            file.reached(6);
            assert_eq!(file.read().unwrap().unwrap().revision, 100);
            file.closed(last);
            assert_eq!(file.read().unwrap().unwrap().revision, remembered);
        }
    }

    #[test]
    fn damaged_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = head_file(&directory);
        for text in [&b""[..], b"7", b"seven\nopen\n", b"7\n", b"7\nmaybe\n", b"\xff\xfe"] {
            fs::write(file.path(), text).unwrap();
            assert_eq!(file.read().unwrap_err().kind(), io::ErrorKind::InvalidData, "{text:?}");
        }
    }
}
