//! The chain of revisions: where it stands, who made each of them, and what lies between two.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::design::plan::ValueChange;
use muster_core::design::{AppliedRecord, DesignRevision};
use muster_core::names::EnvName;
use muster_core::txn::Revision;

/// An environment's design in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesignSummary {
    pub env: EnvName,
    /// The newest revision; none if nothing was ever accepted.
    pub head: Option<DesignRevision>,
    /// The revision that the nodes follow, who said so, and when.
    pub applied: Option<AppliedRecord>,
    /// Whether the nodes are what that revision says.
    pub followed: bool,
    /// In their order; a later one wins.
    pub sources: Vec<SourceRow>,
    pub documents: usize,
    pub nodes: usize,
    pub revision: Revision,
}

/// One source of a design.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceRow {
    pub name: String,
    pub files: usize,
    /// Documents that are written in them.
    pub documents: usize,
    /// Nodes that its environment file makes.
    #[serde(default)]
    pub generated_nodes: usize,
}

/// One accepted change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevisionRow {
    pub design: DesignRevision,
    pub author: String,
    pub message: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub parent: Option<DesignRevision>,
    /// Digest of the list of all of its files: equal ones are the same design.
    pub manifest: String,
    /// Whether the nodes follow this one.
    pub applied: bool,
}

/// What lies between two revisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DesignDiff {
    /// None: compared with a design that holds nothing.
    pub from: Option<DesignRevision>,
    pub to: DesignRevision,
    pub documents: Vec<DocumentDiff>,
    pub revision: Revision,
}

/// A document whose effective values are others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DocumentDiff {
    pub kind: String,
    pub name: String,
    pub sort: DiffKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ValueChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiffKind {
    Added,
    Removed,
    Changed,
}
