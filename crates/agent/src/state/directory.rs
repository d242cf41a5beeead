//! The state directory: its layout, and the lock that excludes a second agent.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use crate::state::durable;

#[derive(Debug, Error)]
pub enum OpenStateDirError {
    #[error("cannot create the state directory {path}: set `state_dir` to a directory that the agent can write")]
    Create {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("another agent uses the state directory {path}: stop it first, or set another `state_dir`")]
    InUse { path: PathBuf },
    #[error("cannot lock {path}")]
    Lock {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The locked state directory. The kernel releases the lock when the process ends.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    pub fn open(path: &Path) -> Result<Self, OpenStateDirError> {
        let failed = |source| OpenStateDirError::Create { path: path.to_owned(), source };
        for part in ["outbox", "runs", "validations", "releases", "modules", "puppet", "home"] {
            fs::create_dir_all(path.join(part)).map_err(failed)?;
        }
        // Appliers run in other working directories and need absolute paths.
        let path = fs::canonicalize(path).map_err(failed)?;
        let lock_path = path.join("lock");
        let lock_failed = |source| OpenStateDirError::Lock { path: lock_path.clone(), source };
        durable::repair_directory(&lock_path);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path).map_err(lock_failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenStateDirError::InUse { path }),
            Err(source) => Err(lock_failed(source.into())),
        }
    }

    pub fn layout(&self) -> Layout {
        Layout { state: self.path.clone() }
    }
}

/// Paths below the state directory.
#[derive(Clone, Debug)]
pub struct Layout {
    state: PathBuf,
}

impl Layout {
    /// The layout of a directory without its lock, for commands that only read.
    pub fn at(state: &Path) -> Self {
        Self { state: state.to_owned() }
    }

    /// The state directory itself.
    pub fn state(&self) -> &Path {
        &self.state
    }

    pub fn lock(&self) -> PathBuf {
        self.state.join("lock")
    }

    pub fn ledger(&self) -> PathBuf {
        self.state.join("ledger.json")
    }

    /// The latest snapshot of the server.
    pub fn snapshot(&self) -> PathBuf {
        self.state.join("snapshot.json")
    }

    /// Identities of the processes that checks found by their pid files.
    pub fn processes(&self) -> PathBuf {
        self.state.join("processes.json")
    }

    pub fn outbox(&self) -> PathBuf {
        self.state.join("outbox")
    }

    pub fn runs(&self) -> PathBuf {
        self.state.join("runs")
    }

    /// Like `runs`, for periodic validations, which would otherwise displace the directories of runs.
    pub fn validations(&self) -> PathBuf {
        self.state.join("validations")
    }

    pub fn releases(&self) -> PathBuf {
        self.state.join("releases")
    }

    /// See [`crate::release::release_history`].
    pub fn release_history(&self) -> PathBuf {
        self.state.join("releases.json")
    }

    /// The list of trusted keys; see [`crate::release::trust`].
    pub fn trust(&self) -> PathBuf {
        self.state.join("trust.json")
    }

    /// Module path with the agent's Puppet module.
    pub fn modules(&self) -> PathBuf {
        self.state.join("modules")
    }

    /// Puppet's own directories.
    pub fn puppet(&self) -> PathBuf {
        self.state.join("puppet")
    }

    /// `HOME` of programs if the agent was started without one.
    pub fn home(&self) -> PathBuf {
        self.state.join("home")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_agent_is_refused_while_the_first_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let first = StateDir::open(&path).unwrap();
        let refused = StateDir::open(&path).unwrap_err();
        assert!(matches!(refused, OpenStateDirError::InUse { .. }), "{refused}");
        drop(first);
        StateDir::open(&path).unwrap();
    }
}
