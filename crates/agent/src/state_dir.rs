//! The agent's own directory: what lies where, and the lock that keeps a second agent out.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum OpenStateError {
    #[error("cannot make the state directory {path}: give the agent a directory that it can write, with `state_dir`")]
    Create {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("another agent uses the state directory {path}: end it first, or give this one a directory of its own")]
    InUse { path: PathBuf },
    #[error("cannot lock {path}")]
    Lock {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The state directory, locked for as long as this lives. The kernel lets the lock go with the process, however it ends.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    pub fn open(path: &Path) -> Result<Self, OpenStateError> {
        let failed = |source| OpenStateError::Create { path: path.to_owned(), source };
        for part in ["outbox", "runs", "validations", "releases", "modules", "puppet", "home"] {
            fs::create_dir_all(path.join(part)).map_err(failed)?;
        }
        // Appliers run with other working directories: every path that they are given must be whole.
        let path = fs::canonicalize(path).map_err(failed)?;
        let lock_path = path.join("lock");
        let lock_failed = |source| OpenStateError::Lock { path: lock_path.clone(), source };
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path).map_err(lock_failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenStateError::InUse { path }),
            Err(source) => Err(lock_failed(source.into())),
        }
    }

    pub fn layout(&self) -> Layout {
        Layout { state: self.path.clone() }
    }
}

/// What lies where below the state directory.
#[derive(Clone, Debug)]
pub struct Layout {
    state: PathBuf,
}

impl Layout {
    /// Of a directory that somebody else may use; for those who only look.
    pub fn at(state: &Path) -> Self {
        Self { state: state.to_owned() }
    }

    pub fn lock(&self) -> PathBuf {
        self.state.join("lock")
    }

    pub fn ledger(&self) -> PathBuf {
        self.state.join("ledger.json")
    }

    /// What the server last said that the node may look up.
    pub fn snapshot(&self) -> PathBuf {
        self.state.join("snapshot.json")
    }

    /// Processes that checks have taken for the ones of their pid files.
    pub fn processes(&self) -> PathBuf {
        self.state.join("processes.json")
    }

    pub fn outbox(&self) -> PathBuf {
        self.state.join("outbox")
    }

    pub fn runs(&self) -> PathBuf {
        self.state.join("runs")
    }

    /// The same for validations between runs: there are many, and they must not crowd out the runs.
    pub fn validations(&self) -> PathBuf {
        self.state.join("validations")
    }

    pub fn releases(&self) -> PathBuf {
        self.state.join("releases")
    }

    /// What must not be forgotten about releases; see [`crate::release::memory`].
    pub fn release_memory(&self) -> PathBuf {
        self.state.join("releases.json")
    }

    /// The list of trusted keys that the node goes by; see [`crate::release::trust`].
    pub fn trust(&self) -> PathBuf {
        self.state.join("trust.json")
    }

    /// A module path with the agent's own Puppet module in it.
    pub fn modules(&self) -> PathBuf {
        self.state.join("modules")
    }

    /// Puppet's own directories.
    pub fn puppet(&self) -> PathBuf {
        self.state.join("puppet")
    }

    /// Where programs find themselves at home if the agent was started without one.
    pub fn home(&self) -> PathBuf {
        self.state.join("home")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_is_kept_out_until_the_first_has_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let first = StateDir::open(&path).unwrap();
        let refused = StateDir::open(&path).unwrap_err();
        assert!(matches!(refused, OpenStateError::InUse { .. }), "{refused}");
        drop(first);
        StateDir::open(&path).unwrap();
    }
}
