//! Digests of files that an earlier validation found valid, so that a build validates only what has changed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::temp_path::TempPath;

const FILE: &str = "validated";
/// Digests that are kept. Beyond that the file starts again: it is a cache.
const LIMIT: usize = 200_000;

/// Keys of valid files.
#[derive(Debug, Default)]
pub(super) struct ValidatedFiles {
    keys: BTreeSet<String>,
    changed: bool,
}

/// A digest of what determines the result: content, syntax and program.
pub(super) fn key(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    muster_core::release::dir::hex(hash.get(..16).unwrap_or_default())
}

impl ValidatedFiles {
    /// Reads the cache; one that is missing or damaged is empty.
    pub(super) fn read(directory: &Path) -> Self {
        let text = fs::read_to_string(directory.join(FILE)).unwrap_or_default();
        let keys: BTreeSet<String> = text.lines().filter(|line| line.len() == 32).map(str::to_owned).collect();
        if keys.len() > LIMIT { Self::default() } else { Self { keys, changed: false } }
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    pub(super) fn add(&mut self, keys: impl Iterator<Item = String>) {
        for key in keys {
            self.changed |= self.keys.insert(key);
        }
    }

    /// Writes the cache. A failure costs time in the next build, and nothing else.
    pub(super) fn write(&self, directory: &Path) {
        if !self.changed {
            return;
        }
        let text: String = self.keys.iter().flat_map(|key| [key.as_str(), "\n"]).collect();
        let _ = fs::create_dir_all(directory).and_then(|()| {
            let temporary = TempPath::in_dir(directory, FILE);
            fs::write(temporary.path(), text).and_then(|()| temporary.rename_to(&directory.join(FILE)))
        });
    }
}
