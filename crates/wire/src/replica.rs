//! What replicas of the server tell each other. Everything else they know from the store.

use muster_core::names::NodeName;
use muster_core::node::status::Activity;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What an agent does that is connected to the replica that was asked. One that is not named does nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentActivity {
    pub node: NodeName,
    pub doing: Activity,
    /// What its last run looked up; told when one node was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lookups: Vec<String>,
    /// Which runs that people asked for the one is that goes on; told when one node was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<String>,
}
