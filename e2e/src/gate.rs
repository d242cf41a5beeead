//! What lets a run go on: a pipe with a name, from which a script takes one line.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};

/// A gate that is shut. Whoever reads a line from [`Gate::path`] waits until somebody is let pass.
#[derive(Debug)]
pub struct Gate {
    path: PathBuf,
    /// Opened for reading too: so neither side waits for the other to open it.
    pipe: File,
}

impl Gate {
    pub fn new(path: PathBuf) -> Self {
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let pipe = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        Self { path, pipe }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the next so many pass, whenever they come.
    pub fn let_pass(&self, many: usize) {
        (&self.pipe).write_all("go\n".repeat(many).as_bytes()).unwrap();
    }
}
