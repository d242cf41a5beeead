//! Design of an environment in the store: its revisions, the newest one and the applied one.
//!
//! `design/<revision>` is written once. `design/head` moves by compare-and-swap to the next number, so the revisions
//! form one chain without gaps. `design/applied` is the revision that the nodes follow. The documents are blobs; a
//! revision names them by the digest of its manifest.

pub mod plan;

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::txn::Revision;

/// Number of an accepted design change, from 1. Not a revision of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = u64)]
pub struct DesignRevision(pub u64);

impl DesignRevision {
    /// Parses a number as written in a key: from 1, without leading zeros.
    pub fn parse(text: &str) -> Option<Self> {
        let number: u64 = text.parse().ok()?;
        (number > 0 && number.to_string() == text).then_some(Self(number))
    }

    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for DesignRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `design/<revision>`: author, message and content of a design change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesignRevisionRecord {
    pub author: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Digest of the blob that lists all files.
    pub manifest: String,
    /// Revision that it was made from. None for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<DesignRevision>,
}

/// `design/applied`: revision that the nodes follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedRecord {
    pub revision: DesignRevision,
    /// Operator who applied it.
    pub author: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// Design revisions of an environment, without documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesignState {
    /// Newest revision, with the revision of `design/head`.
    pub head: Option<(DesignRevision, Revision)>,
    /// Applied revision, with the revision of `design/applied`.
    pub applied: Option<(AppliedRecord, Revision)>,
    pub revisions: BTreeMap<DesignRevision, DesignRevisionRecord>,
}

impl DesignState {
    pub fn head(&self) -> Option<DesignRevision> {
        self.head.as_ref().map(|(revision, _)| *revision)
    }

    pub fn applied(&self) -> Option<DesignRevision> {
        self.applied.as_ref().map(|(applied, _)| applied.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revision_number_has_one_spelling() {
        assert_eq!(DesignRevision::parse("12"), Some(DesignRevision(12)));
        for bad in ["0", "012", "+1", "-1", "", "1 ", "99999999999999999999"] {
            assert_eq!(DesignRevision::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn records_match_the_documented_json() {
        let at = "2026-11-15T10:00:00Z".parse().unwrap();
        let first = DesignRevisionRecord {
            author: "ann@desk".into(),
            message: String::new(),
            at,
            manifest: "ab".into(),
            parent: None,
        };
        assert_eq!(
            serde_json::to_string(&first).unwrap(),
            r#"{"author":"ann@desk","at":"2026-11-15T10:00:00Z","manifest":"ab"}"#
        );
        let applied = AppliedRecord { revision: DesignRevision(3), author: "ann@desk".into(), at };
        assert_eq!(
            serde_json::to_string(&applied).unwrap(),
            r#"{"revision":3,"author":"ann@desk","at":"2026-11-15T10:00:00Z"}"#
        );
        assert_eq!(serde_json::to_string(&DesignRevision(3)).unwrap(), "3", "so is `design/head`");
    }
}
