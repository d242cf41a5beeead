//! Drift of nodes: differences that timed previews have found.

use jiff::Timestamp;
use muster_core::names::{NodeName, Role, RunId};
use muster_core::report::ResourceChange;
use muster_core::report::drift::DriftState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Drift of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeDrift {
    pub node: NodeName,
    pub role: Role,
    pub drift: DriftState,
    /// Reason why the drift is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Begin of the drift, or of the failures to find it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// The preview that found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Number of resources that differ.
    #[serde(default)]
    pub count: u32,
    /// Differences of the resources. Only the first nodes of an answer have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
}

/// A property that differs from the release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    #[serde(flatten)]
    pub change: ResourceChange,
    /// Diff of a text file, if the release shows diffs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}
