//! The design in the store: the chain of its revisions, and which of them the nodes follow.
//!
//! `design/<revision>` is written once and never changed. `design/head` moves by compare-and-swap, from each revision to
//! the next number: so there is one chain without gaps, whoever writes. `design/applied` says which revision the nodes
//! have, or are getting. The documents themselves are blobs; a revision names them by the digest of its manifest.

pub mod plan;

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::txn::Revision;

/// The number of one accepted change of a design, from 1. Not a revision of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = u64)]
pub struct DesignRevision(pub u64);

impl DesignRevision {
    /// Reads a number as it is written in a key: from 1, without leading zeros.
    pub fn parse(text: &str) -> Option<Self> {
        let number: u64 = text.parse().ok()?;
        (number > 0 && number.to_string() == text).then_some(Self(number))
    }

    /// The one after it.
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

/// `design/<revision>`: who changed the design, why, and to what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesignRevisionRecord {
    pub author: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Digest of the blob that lists all of its files.
    pub manifest: String,
    /// The revision that it was made from; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<DesignRevision>,
}

/// `design/applied`: the revision that the nodes follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedRecord {
    pub revision: DesignRevision,
    /// Who said that they should.
    pub author: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// What is known of an environment's design, without its documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesignState {
    /// The newest revision, and when `design/head` was put.
    pub head: Option<(DesignRevision, Revision)>,
    /// The revision that the nodes follow, and when `design/applied` was put.
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
    fn a_number_is_written_in_one_way_only() {
        assert_eq!(DesignRevision::parse("12"), Some(DesignRevision(12)));
        for bad in ["0", "012", "+1", "-1", "", "1 ", "99999999999999999999"] {
            assert_eq!(DesignRevision::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_values_are_those_of_the_table() {
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
