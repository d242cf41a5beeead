//! Request and response types for design revisions: summary, list and differences.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::design::plan::ValueChange;
use muster_core::design::{AppliedRecord, DesignRevision};
use muster_core::names::EnvName;
use muster_core::txn::Revision;

/// Summary of an environment's design.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesignSummary {
    pub env: EnvName,
    /// Newest revision. None without a design.
    pub head: Option<DesignRevision>,
    /// Applied revision, with author and time.
    pub applied: Option<AppliedRecord>,
    /// True if the nodes match the applied revision.
    pub followed: bool,
    /// In their order. A later one wins.
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
    /// Number of documents in its files.
    pub documents: usize,
    /// Number of nodes that its environment file generates.
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
    /// Digest of the list of all files. Equal digests are equal designs.
    pub manifest: String,
    /// True if this is the revision that was applied last. The nodes may still be moving to it.
    pub applied: bool,
}

/// Differences between two revisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DesignDiff {
    /// None: compared with an empty design.
    pub from: Option<DesignRevision>,
    pub to: DesignRevision,
    pub documents: Vec<DocumentDiffRow>,
    pub revision: Revision,
}

/// A document whose effective values differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = DocumentDiff)]
pub struct DocumentDiffRow {
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
