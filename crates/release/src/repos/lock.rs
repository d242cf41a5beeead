//! Reads and writes `repos.lock`, which pins each repository to a commit. It is kept in version control with `repos.yaml`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::file::Repo;
use crate::yaml::{self, YamlError};

/// The file beside `repos.yaml`.
pub const LOCK: &str = "repos.lock";
const FORMAT: u32 = 1;
const HEADER: &str = "\
# Written by `muster release build`: the commit that each repository of repos.yaml is pinned to.
# Keep it in version control; `muster release build --update` moves the pins.
";

#[derive(Debug, Error)]
pub enum LockError {
    #[error(transparent)]
    Yaml(#[from] YamlError),
    #[error("{LOCK} has format {found}, and this version of muster supports format {FORMAT}: use a newer muster")]
    Format { found: u32 },
    #[error("{LOCK}: {name}: {commit:?} is not a commit")]
    Commit { name: String, commit: String },
    #[error("{LOCK} cannot be written as YAML: {0}")]
    Write(String),
}

/// A full commit id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Commit(String);

impl Commit {
    pub fn new(text: &str) -> Option<Self> {
        let legal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        // SHA-1, or SHA-256 in a repository with that object format.
        (matches!(text.len(), 40 | 64) && text.bytes().all(legal)).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 12 digits.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The commit that a repository is pinned to, and the source and ref that it was resolved from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    pub source: String,
    #[serde(rename = "ref")]
    pub reference: String,
    pub commit: Commit,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    pub pins: BTreeMap<String, Pin>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockDocument {
    format: u32,
    repos: BTreeMap<String, Pin>,
}

impl Lock {
    pub fn read(text: &str) -> Result<Self, LockError> {
        let LockDocument { format, repos } = yaml::read(LOCK, text)?;
        if format != FORMAT {
            return Err(LockError::Format { found: format });
        }
        for (name, Pin { commit, .. }) in &repos {
            if Commit::new(commit.as_str()).is_none() {
                return Err(LockError::Commit { name: name.clone(), commit: commit.to_string() });
            }
        }
        Ok(Self { pins: repos })
    }

    pub fn write(&self) -> Result<String, LockError> {
        let written = LockDocument { format: FORMAT, repos: self.pins.clone() };
        let text = serde_saphyr::to_string(&written).map_err(|error| LockError::Write(error.to_string()))?;
        Ok(format!("{HEADER}{}\n", text.trim_end()))
    }

    /// The pinned commit of a repository; none if its source or ref has changed since.
    pub fn commit_of(&self, name: &str, repo: &Repo) -> Option<&Commit> {
        let pin = self.pins.get(name)?;
        (pin.source == repo.source && pin.reference == repo.reference).then_some(&pin.commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_round_trips() {
        let commit = Commit::new(&"a1".repeat(20)).unwrap();
        let pin = Pin { source: "https://git.example/nova.git".into(), reference: "yes".into(), commit };
        let lock = Lock { pins: BTreeMap::from([("nova".to_owned(), pin)]) };
        let text = lock.write().unwrap();
        assert_eq!(Lock::read(&text).unwrap(), lock, "{text}");
        assert_eq!(Lock::read(&Lock::default().write().unwrap()).unwrap(), Lock::default());
        assert!(text.starts_with("# Written by") && text.ends_with("\n") && !text.ends_with("\n\n"), "{text}");
    }

    #[test]
    fn invalid_lock_is_refused() {
        let pin = "format: 1\nrepos:\n  nova: {source: x, ref: main, commit: abc}\n";
        assert_eq!(Lock::read(pin).unwrap_err().to_string(), "repos.lock: nova: \"abc\" is not a commit");
        assert!(matches!(Lock::read("format: 2\nrepos: {}\n"), Err(LockError::Format { found: 2 })));
        let markers = "<<<<<<< ours\nformat: 1\n";
        assert!(Lock::read(markers).unwrap_err().to_string().starts_with("repos.lock:"));
    }
}
