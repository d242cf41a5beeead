//! Policies of nodes: requests to cordon and retire nodes, and their responses.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::names::NodeName;
use muster_core::node::policy::{NodePolicy, PolicyRecord};
use muster_core::txn::Revision;

/// Request to cordon or retire a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetPolicy {
    /// `cordoned` or `retired`.
    pub policy: NodePolicy,
    /// Reason, shown with the node. A cordon needs one.
    #[serde(default)]
    pub reason: String,
}

/// Response to a change of a node's policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyResponse {
    pub node: NodeName,
    /// Policy now. None if the node is in service.
    pub policy: Option<PolicyRecord>,
    /// Previous policy. None if the node was in service.
    pub before: Option<PolicyRecord>,
    /// False if the node had this policy already.
    pub changed: bool,
    pub revision: Revision,
}
