//! Watches the files of a project with inotify. A save is complete when no file has changed for a moment.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use thiserror::Error;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

/// Time without changes after which a save is complete: an editor writes several files, and `git checkout` many.
const QUIET: Duration = Duration::from_millis(300);
/// Longest save: a process that writes all the time does not delay it for ever.
const LONGEST: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
#[error("cannot watch {}{}", path.display(), advice(source))]
pub(super) struct WatchError {
    path: PathBuf,
    source: io::Error,
}

fn advice(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        // The limit of watches, not of the disk.
        Some(Errno::NOSPC) => "; raise the limit with `sysctl fs.inotify.max_user_watches=524288`",
        _ => "",
    }
}

/// The directories of a project.
#[derive(Debug)]
pub(super) struct ProjectWatch {
    inotify: AsyncFd<OwnedFd>,
    root: PathBuf,
    /// The state directory, which changes all the time and may be in the project.
    skipped: PathBuf,
    debounce: Debounce,
}

impl ProjectWatch {
    pub(super) fn open(project: &Path, state: &Path) -> Result<Self, WatchError> {
        let failed = |source| WatchError { path: project.to_owned(), source };
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        #[expect(deprecated, reason = "its replacement is unsafe code; an owned descriptor stays open and the same")]
        let inotify = inotify.map_err(io::Error::from).and_then(AsyncFd::new).map_err(failed)?;
        let root = project.canonicalize().map_err(failed)?;
        // The state directory exists: the fleet has started in it.
        let skipped = state.canonicalize().unwrap_or_else(|_| state.to_owned());
        let watch = Self { inotify, root, skipped, debounce: Debounce::default() };
        watch.add_directories()?;
        Ok(watch)
    }

    /// Waits until files have been saved. Can be dropped and called again without losing a change.
    pub(super) async fn saved(&mut self) -> Result<(), WatchError> {
        loop {
            let due = self.debounce.due();
            tokio::select! {
                changed = changed(&self.inotify) => {
                    changed.map_err(|source| WatchError { path: self.root.clone(), source })?;
                    // Before the files are read: a later change in a new directory is reported.
                    self.add_directories()?;
                    self.debounce.changed(Instant::now());
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.debounce = Debounce::default();
                    return Ok(());
                }
            }
        }
    }

    /// Watches all directories, also those that are new. A directory that is watched already stays so.
    fn add_directories(&self) -> Result<(), WatchError> {
        let flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        let mut directories = vec![self.root.clone()];
        while let Some(path) = directories.pop() {
            match inotify::add_watch(self.inotify.get_ref(), &path, flags) {
                Ok(_) => {}
                // It was removed or replaced meanwhile; or this user cannot read it, and it cannot be part of a release.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => continue,
                Err(error) => return Err(WatchError { path, source: error.into() }),
            }
            for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let is_project = !is_temporary(entry.file_name().as_encoded_bytes()) && entry.path() != self.skipped;
                if is_directory && is_project {
                    directories.push(entry.path());
                }
            }
        }
        Ok(())
    }
}

/// Waits for a change of a file that is not temporary.
async fn changed(inotify: &AsyncFd<OwnedFd>) -> io::Result<()> {
    loop {
        let mut ready = inotify.readable().await?;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(inotify.get_ref(), &mut buffer);
        let mut is_change = false;
        loop {
            match events.next() {
                // An event without a name is about a directory, or about events that were lost.
                Ok(event) => is_change |= event.file_name().is_none_or(|name| !is_temporary(name.to_bytes())),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        ready.clear_ready();
        if is_change {
            return Ok(());
        }
    }
}

/// Hidden files, `.git` and `.muster`, and the files that editors create beside the file that they save.
fn is_temporary(name: &[u8]) -> bool {
    name.starts_with(b".") || name.ends_with(b"~") || name == b"4913"
}

/// Decides when a series of changes is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Debounce {
    /// The first and the last change.
    changes: Option<(Instant, Instant)>,
}

impl Debounce {
    fn changed(&mut self, now: Instant) {
        let first = self.changes.map_or(now, |(first, _)| first);
        self.changes = Some((first, now));
    }

    /// Time at which the series is complete, if nothing changes until then. None without a change.
    fn due(&self) -> Option<Instant> {
        self.changes.map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn series_ends_after_a_quiet_time_or_the_longest_time() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut debounce = Debounce::default();
        assert_eq!(debounce.due(), None);
        debounce.changed(start);
        assert_eq!(debounce.due(), Some(at(300)));
        debounce.changed(at(200));
        assert_eq!(debounce.due(), Some(at(500)));
        (1..60).for_each(|step| debounce.changed(at(step * 100)));
        assert_eq!(debounce.due(), Some(at(5000)));
    }

    #[tokio::test]
    async fn saves_are_seen_in_new_directories_and_not_in_temporary_files() {
        let project = tempfile::tempdir().unwrap();
        let root = project.path().canonicalize().unwrap();
        let state = root.join("state");
        fs::create_dir_all(&state).unwrap();
        let mut watch = ProjectWatch::open(&root, &state).unwrap();
        let is_quiet = |watch: &ProjectWatch| watch.debounce == Debounce::default();

        fs::create_dir_all(root.join("releases/v2/data")).unwrap();
        watch.saved().await.unwrap();
        fs::write(root.join("releases/v2/data/common.yaml"), "a: 1\n").unwrap();
        watch.saved().await.unwrap();
        fs::rename(root.join("releases/v2"), root.join("releases/v3")).unwrap();
        watch.saved().await.unwrap();
        assert!(is_quiet(&watch));

        fs::write(state.join("server.log"), "x").unwrap();
        fs::write(root.join(".site.pp.swp"), "x").unwrap();
        fs::write(root.join("site.pp~"), "x").unwrap();
        drop(watch.inotify.readable().await.unwrap());
        let waiting = tokio::time::timeout(Duration::ZERO, watch.saved());
        assert!(waiting.await.is_err() && is_quiet(&watch), "no change");
        fs::write(root.join("releases/v3/data/common.yaml"), "a: 2\n").unwrap();
        watch.saved().await.unwrap();
    }
}
