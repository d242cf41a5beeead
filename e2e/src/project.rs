//! Project directories with an environment and releases, and barriers for their runs.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use muster_testkit::release::{ScriptRelease, write_file};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::sandbox::Sandbox;
use crate::server::ENV;

/// A project directory.
#[derive(Clone, Debug)]
pub struct Project {
    pub dir: PathBuf,
}

impl Project {
    /// A project with this many nodes of each role.
    pub fn new(sandbox: &Sandbox, roles: &[(&str, u32)]) -> Self {
        let mut text = "roles:\n".to_owned();
        for (role, cardinality) in roles {
            writeln!(text, "  {role}: {{cardinality: {cardinality}, flavor: local}}").unwrap();
        }
        Self::with_environment(sandbox, &text)
    }

    /// A project with this environment file.
    pub fn with_environment(sandbox: &Sandbox, text: &str) -> Self {
        let project = Self { dir: sandbox.path("project") };
        write_file(&project.dir.join(format!("environments/{ENV}.yaml")), text);
        project
    }

    #[must_use]
    pub fn release(self, version: &str, release: &ScriptRelease) -> Self {
        release.write(&self.dir.join("releases").join(version));
        self
    }

    /// A release with a Puppet manifest only.
    #[must_use]
    pub fn puppet_release(self, version: &str, manifest: &str) -> Self {
        let dir = self.dir.join("releases").join(version);
        write_file(&dir.join("release.yaml"), "applier: puppet\nmanifest: site.pp\n");
        write_file(&dir.join("site.pp"), manifest);
        self
    }
}

/// A barrier in the form of a named pipe. A script that reads a line from [`Barrier::path`] waits for
/// [`Barrier::release`].
#[derive(Debug)]
pub struct Barrier {
    path: PathBuf,
    /// Opened for reading too, so that neither side waits for the other to open it.
    pipe: File,
}

impl Barrier {
    pub fn new(path: PathBuf) -> Self {
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let pipe = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        Self { path, pipe }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Releases this many readers, present or future.
    pub fn release(&self, count: usize) {
        (&self.pipe).write_all("go\n".repeat(count).as_bytes()).unwrap();
    }
}
