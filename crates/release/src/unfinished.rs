//! A file or directory that is being made: gone again unless it is finished.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Unfinished {
    path: Option<PathBuf>,
}

static COUNTER: AtomicU64 = AtomicU64::new(0);

impl Unfinished {
    /// Takes care of a path that the caller makes.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: Some(path.to_owned()) }
    }

    /// A name beside what it is to become, that nobody else uses: another process has another id, and within this one
    /// a counter tells them apart.
    pub(crate) fn beside(directory: &Path, what: &str) -> Self {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        Self::new(&directory.join(format!(".unfinished-{what}-{}-{number}", std::process::id())))
    }

    pub(crate) fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(""))
    }

    /// It is whole where it is.
    pub(crate) fn keep(mut self) {
        self.path = None;
    }

    /// It is whole and gets its name.
    pub(crate) fn rename_to(mut self, target: &Path) -> io::Result<()> {
        fs::rename(self.path(), target)?;
        self.path = None;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let Some(path) = &self.path else { return };
        // Nothing can be told from here; what stays is named so that a person knows it for what it is.
        let _ = match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(_) => Ok(()),
        };
    }
}
