//! Environments with their design.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::design::DesignRevision;
use muster_core::fleet::DestroyRecord;
use muster_core::names::{EnvName, Role, Version};
use muster_core::node::status::NodeState;
use muster_core::txn::Revision;

/// Design revisions of an environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesignRevisions {
    /// Newest revision.
    pub head: Option<DesignRevision>,
    /// Applied revision.
    pub applied: Option<DesignRevision>,
}

/// One environment: design, roles and node counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentDetail {
    pub env: EnvName,
    pub nodes: usize,
    pub current_version: Option<Version>,
    pub design: DesignRevisions,
    /// In the order of the design.
    pub roles: Vec<RoleRow>,
    /// Number of nodes by state.
    #[schema(value_type = BTreeMap<String, usize>)]
    pub counts: BTreeMap<NodeState, usize>,
    pub releases: usize,
    /// Set while the environment is being destroyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroying: Option<DestroyRecord>,
    pub revision: Revision,
}

/// One role of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleRow {
    pub role: Role,
    pub nodes: usize,
    #[schema(value_type = BTreeMap<String, usize>)]
    pub counts: BTreeMap<NodeState, usize>,
}

/// Response to destroying an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestroyResponse {
    pub env: EnvName,
    /// Number of nodes that it had.
    pub nodes: usize,
    /// True if everything is deleted. False if it takes longer than the server waits; it continues in the background.
    pub gone: bool,
    pub revision: Revision,
}
