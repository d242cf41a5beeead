//! What operators say to content and to agents: configuration data, pauses, and what a node sees of all of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use muster_core::lookup::config_data::Layer;
use muster_core::lookup::explain::LookupResult;
use muster_core::names::{DataKey, NodeName};
use muster_core::node::pause::NodePause;
use muster_core::txn::Revision;

/// One datum, as people see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatumRow {
    pub key: DataKey,
    #[serde(flatten)]
    pub layer: Layer,
    /// `[secret]` for a secret: those are shown to nodes, and to nobody else.
    pub value: Value,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    pub by: String,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Why it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it was last changed: what `If-Match` compares.
    pub changed_at: Revision,
    /// No node of the design has this role or this name: it is there for later, or was left behind.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_nobody: bool,
}

/// Sets a datum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SetDatum {
    pub value: Value,
    /// Show it to nodes, and to nobody else.
    #[serde(default)]
    pub secret: bool,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Even if no node of the design has this role or this name yet.
    #[serde(default)]
    pub force: bool,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SetDatumResponse {
    #[serde(flatten)]
    pub datum: DatumRow,
    /// False if it had this value already.
    pub changed: bool,
    /// The revision at which it is visible.
    pub revision: Revision,
}

/// A datum was taken away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UnsetDatumResponse {
    /// What it was; none if it was not there.
    pub before: Option<DatumRow>,
    pub revision: Revision,
}

/// A pause in the list of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PauseRow {
    #[serde(flatten)]
    pub paused: NodePause,
    /// How many nodes of the design it holds back.
    pub nodes: usize,
}

/// Pauses nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetPause {
    /// Why: shown to everybody who finds these nodes standing still.
    pub reason: String,
    /// It ends by itself after so long; without it, when somebody ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Even if no node of the design has this role or this name yet.
    #[serde(default)]
    pub force: bool,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetPauseResponse {
    #[serde(flatten)]
    pub pause: PauseRow,
    /// The pause that it took the place of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<NodePause>,
    pub revision: Revision,
}

/// A pause has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResumeResponse {
    /// What it was; none if there was none.
    pub before: Option<NodePause>,
    /// Other pauses that hold the same nodes back, or some of them.
    pub still: Vec<PauseRow>,
    pub revision: Revision,
}

/// What a node would see at a key, and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LookupResponse {
    pub node: NodeName,
    /// As it was asked for: a plain key, or one that begins with `etcdlookup::`.
    pub key: String,
    /// What is there; none if there is nothing.
    pub found: Option<LookupResult>,
    /// What was probably meant, if there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<String>,
    /// Whether the node's last run looked it up, and would run again if it changed; none while its agent is not connected.
    pub looked_up: Option<bool>,
    pub revision: Revision,
}
