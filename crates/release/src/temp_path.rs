//! A temporary file or directory that is removed on drop unless it is kept or renamed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use muster_removal::ParentDir;

#[derive(Debug)]
pub(crate) struct TempPath {
    path: PathBuf,
    /// Directory from which the entry is removed. `None`: it stays, or the directory does not exist.
    parent: Option<ParentDir>,
}

static COUNTER: AtomicU64 = AtomicU64::new(0);

impl TempPath {
    /// Owns a path that the caller creates.
    pub(crate) fn new(path: &Path) -> Self {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self { path: path.to_owned(), parent: ParentDir::open(parent).ok() }
    }

    /// A unique name in the target's directory, made of the process id and a counter. The process that left an entry may have
    /// had the same id: its name is not taken.
    pub(crate) fn in_dir(directory: &Path, name: &str) -> Self {
        loop {
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let path = directory.join(format!(".unfinished-{name}-{}-{number}", std::process::id()));
            if path.symlink_metadata().is_err() {
                return Self::new(&path);
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the path: it is complete.
    pub(crate) fn keep(mut self) {
        self.parent = None;
    }

    /// Renames it to its final name: it is complete.
    pub(crate) fn rename_to(mut self, target: &Path) -> io::Result<()> {
        fs::rename(self.path(), target)?;
        self.parent = None;
        Ok(())
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        if let (Some(parent), Some(name)) = (&self.parent, self.path.file_name()) {
            // Errors cannot be returned from here; the name of a leftover says what it is.
            let _ = parent.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_of_another_process_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let next = COUNTER.load(Ordering::Relaxed);
        // Other tests of this process may take numbers meanwhile.
        let names = (next..next + 1000).map(|number| format!(".unfinished-x-{}-{number}", std::process::id()));
        let foreign: Vec<PathBuf> = names.map(|name| directory.path().join(name)).collect();
        foreign.iter().for_each(|path| fs::create_dir(path).unwrap());
        let temporary = TempPath::in_dir(directory.path(), "x");
        fs::create_dir(temporary.path()).unwrap();
        let own = temporary.path().to_owned();
        drop(temporary);
        assert!(!own.exists() && foreign.iter().all(|path| path.exists()));
    }

    #[test]
    fn entry_is_removed_from_the_directory_it_was_made_in() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("made")).unwrap();
        let temporary = TempPath::in_dir(&path("made"), "x");
        fs::create_dir_all(temporary.path().join("deep")).unwrap();
        fs::rename(path("made"), path("moved")).unwrap();
        let foreign = temporary.path().to_owned();
        fs::create_dir_all(foreign.join("foreign")).unwrap();
        drop(temporary);
        assert!(foreign.join("foreign").exists());
        assert_eq!(fs::read_dir(path("moved")).unwrap().count(), 0);
    }
}
