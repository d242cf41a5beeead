//! What is different between two releases.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::contents::{Contents, FileFacts};

/// A file that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileChange {
    pub path: String,
    #[serde(flatten)]
    pub what: Change,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Change {
    Added { after: FileFacts },
    Removed { before: FileFacts },
    Changed { before: FileFacts, after: FileFacts },
}

/// Every file that is not the same, in the order of their paths.
pub fn diff(before: &Contents, after: &Contents) -> Vec<FileChange> {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |path: &String| {
        let what = match (before.get(path).cloned(), after.get(path).cloned()) {
            (None, None) => return None,
            (None, Some(after)) => Change::Added { after },
            (Some(before), None) => Change::Removed { before },
            (Some(before), Some(after)) if before == after => return None,
            (Some(before), Some(after)) => Change::Changed { before, after },
        };
        Some(FileChange { path: path.clone(), what })
    };
    paths.into_iter().filter_map(change).collect()
}
