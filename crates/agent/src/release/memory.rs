//! What the node must not forget about releases: the highest serial that it has proved, where it went last, and what it
//! proved last.
//!
//! A file of its own, beside the ledger, written and synced by itself: a ledger that is damaged or taken away does not open the way
//! back to releases that were left for a reason.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::durable::{self, WriteError};
use crate::ledger::{LoadError, read_or_move_aside};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// A release with a lower serial is refused. Raised when a validation passes; lowered when one passes at a release
    /// that a person let the node go back to.
    #[serde(default)]
    pub highest: Option<u64>,
    /// The digest of the bundle that the node went to last.
    #[serde(default)]
    pub current: Option<String>,
    /// The digest of the bundle whose validation passed last.
    #[serde(default)]
    pub proved: Option<String>,
    /// The digest of the bundle that the node goes back to if nobody confirms the one that it went to last.
    #[serde(default)]
    pub fallback: Option<String>,
}

impl Memory {
    /// Reads it. `told` is a serial that the ledger knows to be proved: it stands in for a memory that is damaged.
    pub fn load(path: &Path, told: Option<u64>) -> Result<Self, LoadError> {
        let mut memory: Memory = read_or_move_aside(path)?.unwrap_or_default();
        memory.highest = memory.highest.or(told);
        Ok(memory)
    }

    /// The node goes to a release.
    #[must_use]
    pub fn gone_to(&self, digest: &str, fallback: Option<&str>) -> Self {
        Self { current: Some(digest.to_owned()), fallback: fallback.map(str::to_owned), ..self.clone() }
    }

    /// A validation has passed at a release.
    #[must_use]
    pub fn proved(&self, digest: &str, serial: u64, allow_older: bool) -> Self {
        let highest = match self.highest {
            Some(highest) if !allow_older => highest.max(serial),
            Some(_) | None => serial,
        };
        let digest = Some(digest.to_owned());
        Self { highest: Some(highest), current: digest.clone(), proved: digest, fallback: self.fallback.clone() }
    }

    pub fn save(&self, path: &Path) -> Result<(), WriteError> {
        durable::write_json(path, self)
    }
}

/// A memory with its file.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    memory: Memory,
    /// The last attempt to write it failed.
    unwritten: bool,
}

impl Kept {
    pub fn load(path: PathBuf, told: Option<u64>) -> Result<Self, LoadError> {
        let memory = Memory::load(&path, told)?;
        Ok(Self { path, memory, unwritten: false })
    }

    pub fn get(&self) -> &Memory {
        &self.memory
    }

    /// Holds from now on, and on disk when this returns well. One that is the same is not written.
    pub fn set(&mut self, memory: Memory) -> Result<(), WriteError> {
        if memory == self.memory && !self.unwritten && self.path.exists() {
            return Ok(());
        }
        self.memory = memory;
        let saved = self.memory.save(&self.path);
        self.unwritten = saved.is_err();
        saved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_serial_grows_and_goes_back_only_when_somebody_says_so() {
        let memory = Memory::default().proved("sha256:a", 7, false);
        assert_eq!(memory.highest, Some(7));
        assert_eq!(memory.proved("sha256:b", 9, false).highest, Some(9));
        // Admitted before the flag was taken away again, and proved after: it stays.
        assert_eq!(memory.proved("sha256:b", 3, false).highest, Some(7));
        assert_eq!(memory.proved("sha256:b", 3, true).highest, Some(3));
        // Going somewhere proves nothing.
        let gone = memory.gone_to("sha256:c", Some("sha256:a"));
        assert_eq!((gone.highest, gone.proved.as_deref()), (Some(7), Some("sha256:a")));
        assert_eq!(gone.current.as_deref(), Some("sha256:c"));
        // What it may have to go back to is needed until it goes elsewhere.
        assert_eq!(gone.proved("sha256:c", 8, false).fallback.as_deref(), Some("sha256:a"));
        assert_eq!(gone.gone_to("sha256:c", None).fallback, None);
    }

    #[test]
    fn it_outlives_the_agent_and_a_broken_one_is_kept_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("releases.json");
        let mut kept = Kept::load(path.clone(), None).unwrap();
        kept.set(Memory::default().proved("sha256:a", 7, false)).unwrap();
        assert_eq!(Kept::load(path.clone(), Some(2)).unwrap().get().highest, Some(7));
        std::fs::write(&path, "{\"highest\":").unwrap();
        assert_eq!(Kept::load(path.clone(), Some(5)).unwrap().get().highest, Some(5));
        assert!(dir.path().join("releases.json.broken").exists());
        assert_eq!(Kept::load(path, None).unwrap().get().highest, None);
    }

    #[test]
    fn what_could_not_be_written_is_written_the_next_time_though_it_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/releases.json");
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let mut kept = Kept::load(path.clone(), None).unwrap();
        let (first, second) =
            (Memory::default().proved("sha256:a", 7, false), Memory::default().proved("sha256:b", 8, false));
        kept.set(first).unwrap();
        std::fs::rename(dir.path().join("state"), dir.path().join("away")).unwrap();
        assert!(kept.set(second.clone()).is_err());
        std::fs::rename(dir.path().join("away"), dir.path().join("state")).unwrap();
        kept.set(second).unwrap();
        assert_eq!(Kept::load(path, None).unwrap().get().highest, Some(8));
    }
}
