//! A temporary file or directory that is removed on drop unless it is kept or renamed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

#[derive(Debug)]
pub(crate) struct TempPath {
    path: Option<PathBuf>,
}

static COUNTER: AtomicU64 = AtomicU64::new(0);

impl TempPath {
    /// Owns a path that the caller creates.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: Some(path.to_owned()) }
    }

    /// A unique name in the target's directory, made of the process id and a counter.
    pub(crate) fn in_dir(directory: &Path, name: &str) -> Self {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        Self::new(&directory.join(format!(".unfinished-{name}-{}-{number}", std::process::id())))
    }

    pub(crate) fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(""))
    }

    /// Keeps the path: it is complete.
    pub(crate) fn keep(mut self) {
        self.path = None;
    }

    /// Renames it to its final name: it is complete.
    pub(crate) fn rename_to(mut self, target: &Path) -> io::Result<()> {
        fs::rename(self.path(), target)?;
        self.path = None;
        Ok(())
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let Some(path) = &self.path else { return };
        // Errors cannot be returned from here; the name of a leftover says what it is.
        let _ = match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(_) => Ok(()),
        };
    }
}
