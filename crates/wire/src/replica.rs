//! Messages between replicas. Replicas share everything else through the store.

use muster_core::names::NodeName;
use muster_core::node::status::Activity;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Activity of an agent that is connected to the responding replica. Idle agents may be missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentActivity {
    pub node: NodeName,
    pub doing: Activity,
    /// Keys that its last run looked up. Only in a response about one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lookups: Vec<String>,
    /// Ids of the run requests that the current run serves. Only in a response about one node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<String>,
}
