//! Request and response types for configuration data, pauses and lookups.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use muster_core::lookup::config_data::Layer;
use muster_core::lookup::explain::LookupResult;
use muster_core::names::{DataKey, NodeName};
use muster_core::node::pause::NodePause;
use muster_core::txn::Revision;

/// One datum, as shown to operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatumRow {
    pub key: DataKey,
    #[serde(flatten)]
    pub layer: Layer,
    /// `[secret]` for a secret. Only nodes see secrets.
    pub value: Value,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Reason for setting it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Revision of the last change, for `If-Match`.
    pub changed_at: Revision,
    /// No node of the design has this role or name.
    #[serde(rename = "for_nobody", default, skip_serializing_if = "std::ops::Not::not")]
    pub matches_no_node: bool,
}

/// Request to set a datum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SetDatum {
    pub value: Value,
    /// Show the value to nodes only.
    #[serde(default)]
    pub secret: bool,
    /// Reason for setting it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Allow a role or name that no node of the design has.
    #[serde(default)]
    pub force: bool,
}

/// Response to setting a datum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SetDatumResponse {
    #[serde(flatten)]
    pub datum: DatumRow,
    /// False if it had this value already.
    pub changed: bool,
    /// Revision at which the change is visible.
    pub revision: Revision,
}

/// Response to unsetting a datum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UnsetDatumResponse {
    /// Previous datum. None if there was none.
    pub before: Option<DatumRow>,
    pub revision: Revision,
}

/// A pause in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PauseRow {
    #[serde(flatten)]
    pub paused: NodePause,
    /// Number of nodes of the design that it holds.
    pub nodes: usize,
}

/// Request to pause nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetPause {
    /// Reason, shown with the paused nodes.
    pub reason: String,
    /// Duration in seconds. Without it an operator has to end the pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Allow a role or name that no node of the design has.
    #[serde(default)]
    pub force: bool,
}

/// Response to a pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetPauseResponse {
    #[serde(flatten)]
    pub pause: PauseRow,
    /// Pause that was replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<NodePause>,
    pub revision: Revision,
}

/// Response to ending a pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResumeResponse {
    /// Previous pause. None if there was none.
    pub before: Option<NodePause>,
    /// Other pauses that hold some of the same nodes.
    #[serde(rename = "still")]
    pub remaining: Vec<PauseRow>,
    pub revision: Revision,
}

/// Values of a node in the applied design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SelfResponse {
    pub node: NodeName,
    /// Empty for all values.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    pub value: Value,
    pub revision: Revision,
}

/// Value that a node would look up, with its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LookupResponse {
    pub node: NodeName,
    /// As requested: a plain key, or one with the prefix `muster::`.
    pub key: String,
    /// None if there is no value.
    pub found: Option<LookupResult>,
    /// Suggestion, if there is no value.
    #[serde(rename = "near", default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// True if the node's last run looked the key up, so that a change makes it run. None while its agent is not
    /// connected.
    pub looked_up: Option<bool>,
    pub revision: Revision,
}
