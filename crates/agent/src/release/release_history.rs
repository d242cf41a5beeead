//! History of the releases on a node: the highest validated serial, the current, validated and fallback release, and the
//! content of each version that the node has run.
//!
//! It is stored in its own file, so that a damaged or deleted ledger does not allow older releases again.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use muster_core::names::Version;
use muster_core::release::manifest::Digest;

use crate::state::durable::{self, StateWriteError};
use crate::state::ledger::{LoadError, read_or_move_aside};

/// Versions that are remembered, with about 100 bytes each: years of weekly releases.
const RUN_LIMIT: usize = 1000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseHistory {
    /// A release with a lower serial is refused. Raised by a passed validation. Lowered by a passed validation of a release
    /// with `allow_older`.
    #[serde(default)]
    pub highest: Option<u64>,
    /// Digest of the bundle that was applied last.
    #[serde(default)]
    pub current: Option<String>,
    /// Digest of the bundle whose validation passed last.
    #[serde(default, rename = "proved")]
    pub validated: Option<String>,
    /// Digest of the bundle to roll back to if the current one is not confirmed.
    #[serde(default)]
    pub fallback: Option<String>,
    /// Versions that the node has run, the latest last. Only signed releases are added.
    #[serde(default)]
    pub runs: Vec<RunVersion>,
}

/// A version that the node has run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunVersion {
    pub version: Version,
    /// Digest of its unpacked content.
    pub content: String,
}

impl ReleaseHistory {
    /// Reads the history. `validated` is a validated serial of the ledger, used if the file is missing or damaged.
    pub fn load(path: &Path, validated: Option<u64>) -> Result<Self, LoadError> {
        let mut history: ReleaseHistory = read_or_move_aside(path)?.unwrap_or_default();
        history.highest = history.highest.or(validated);
        Ok(history)
    }

    /// The history after the node began to apply a release.
    #[must_use]
    pub fn with_current(&self, digest: &str, fallback: Option<&str>) -> Self {
        Self { current: Some(digest.to_owned()), fallback: fallback.map(str::to_owned), ..self.clone() }
    }

    /// The history after a release was validated.
    #[must_use]
    pub fn with_validated(&self, digest: &str, serial: u64, allow_older: bool) -> Self {
        let highest = match self.highest {
            Some(highest) if !allow_older => highest.max(serial),
            Some(_) | None => serial,
        };
        let digest = Some(digest.to_owned());
        Self { highest: Some(highest), current: digest.clone(), validated: digest, ..self.clone() }
    }

    /// Adds a version that the node begins to run. The oldest one beyond the limit is forgotten.
    pub fn add_run(&mut self, version: Version, content: &Digest) {
        self.runs.retain(|run| run.version != version);
        self.runs.push(RunVersion { version, content: content.to_string() });
        self.runs.drain(..self.runs.len().saturating_sub(RUN_LIMIT));
    }

    /// Digest of the content that the node has run under a version.
    pub fn content_of(&self, version: &Version) -> Option<&str> {
        self.runs.iter().find(|run| run.version == *version).map(|run| run.content.as_str())
    }

    pub fn save(&self, path: &Path) -> Result<(), StateWriteError> {
        durable::write_json(path, self)
    }
}

/// A release history with its file.
#[derive(Debug)]
pub struct ReleaseHistoryFile {
    path: PathBuf,
    history: ReleaseHistory,
    /// The last write failed.
    unwritten: bool,
}

impl ReleaseHistoryFile {
    pub fn load(path: PathBuf, validated: Option<u64>) -> Result<Self, LoadError> {
        let history = ReleaseHistory::load(&path, validated)?;
        Ok(Self { path, history, unwritten: false })
    }

    pub fn get(&self) -> &ReleaseHistory {
        &self.history
    }

    /// Sets the history in memory and, if it has changed, on disk.
    pub fn set(&mut self, history: ReleaseHistory) -> Result<(), StateWriteError> {
        if history == self.history && !self.unwritten && self.path.exists() {
            return Ok(());
        }
        self.history = history;
        let saved = self.history.save(&self.path);
        self.unwritten = saved.is_err();
        saved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_serial_falls_only_with_allow_older() {
        let history = ReleaseHistory::default().with_validated("sha256:a", 7, false);
        assert_eq!(history.highest, Some(7));
        assert_eq!(history.with_validated("sha256:b", 9, false).highest, Some(9));
        // Admitted with the flag, and validated after the flag was removed.
        assert_eq!(history.with_validated("sha256:b", 3, false).highest, Some(7));
        assert_eq!(history.with_validated("sha256:b", 3, true).highest, Some(3));
        // Applying a release validates nothing.
        let applied = history.with_current("sha256:c", Some("sha256:a"));
        assert_eq!((applied.highest, applied.validated.as_deref()), (Some(7), Some("sha256:a")));
        assert_eq!(applied.current.as_deref(), Some("sha256:c"));
        // The fallback is needed until another release is applied.
        assert_eq!(applied.with_validated("sha256:c", 8, false).fallback.as_deref(), Some("sha256:a"));
        assert_eq!(applied.with_current("sha256:c", None).fallback, None);
    }

    #[test]
    fn content_of_each_version_that_has_run_is_kept() {
        let (version, digest) = (
            |number: usize| Version::new(format!("v{number}")).unwrap(),
            |number: u8| Digest::of_sha256(&[number; 32]),
        );
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("releases.json");
        std::fs::write(&path, r#"{"highest":7}"#).unwrap();
        let mut file = ReleaseHistoryFile::load(path.clone(), None).unwrap();
        let mut history = file.get().clone();
        assert_eq!(history.content_of(&version(1)), None);
        history.add_run(version(1), &digest(1));
        history.add_run(version(2), &digest(2));
        file.set(history).unwrap();
        let mut history = ReleaseHistoryFile::load(path, None).unwrap().get().clone();
        assert_eq!(history.content_of(&version(1)), Some(digest(1).as_str()));
        // Another run makes it the latest.
        history.add_run(version(1), &digest(1));
        (3..=RUN_LIMIT + 1).for_each(|number| history.add_run(version(number), &digest(3)));
        assert_eq!(history.runs.len(), RUN_LIMIT);
        assert_eq!(history.content_of(&version(2)), None);
        assert_eq!(history.content_of(&version(1)), Some(digest(1).as_str()));
    }

    #[test]
    fn history_is_persistent_and_a_damaged_one_is_moved_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("releases.json");
        let mut file = ReleaseHistoryFile::load(path.clone(), None).unwrap();
        file.set(ReleaseHistory::default().with_validated("sha256:a", 7, false)).unwrap();
        assert_eq!(ReleaseHistoryFile::load(path.clone(), Some(2)).unwrap().get().highest, Some(7));
        std::fs::write(&path, "{\"highest\":").unwrap();
        assert_eq!(ReleaseHistoryFile::load(path.clone(), Some(5)).unwrap().get().highest, Some(5));
        assert!(dir.path().join("releases.json.broken").exists());
        assert_eq!(ReleaseHistoryFile::load(path, None).unwrap().get().highest, None);
    }

    #[test]
    fn failed_write_is_repeated_with_the_same_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/releases.json");
        std::fs::create_dir(dir.path().join("state")).unwrap();
        let mut file = ReleaseHistoryFile::load(path.clone(), None).unwrap();
        let (first, second) = (
            ReleaseHistory::default().with_validated("sha256:a", 7, false),
            ReleaseHistory::default().with_validated("sha256:b", 8, false),
        );
        file.set(first).unwrap();
        std::fs::rename(dir.path().join("state"), dir.path().join("away")).unwrap();
        assert!(file.set(second.clone()).is_err());
        std::fs::rename(dir.path().join("away"), dir.path().join("state")).unwrap();
        file.set(second).unwrap();
        assert_eq!(ReleaseHistoryFile::load(path, None).unwrap().get().highest, Some(8));
    }
}
