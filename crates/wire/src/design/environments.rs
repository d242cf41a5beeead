//! An environment as whoever plans and destroys it sees it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::design::DesignRevision;
use muster_core::fleet::DestroyRecord;
use muster_core::names::{EnvName, Role, Version};
use muster_core::node::status::NodeState;
use muster_core::txn::Revision;

/// Where an environment's design stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesignRevisions {
    /// The newest revision.
    pub head: Option<DesignRevision>,
    /// The one that the nodes follow.
    pub applied: Option<DesignRevision>,
}

/// One environment: what it is made of, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnvironmentDetail {
    pub env: EnvName,
    pub nodes: usize,
    pub current_version: Option<Version>,
    pub design: DesignRevisions,
    /// In the order of the design.
    pub roles: Vec<RoleRow>,
    /// How many nodes stand where.
    #[schema(value_type = BTreeMap<String, usize>)]
    pub counts: BTreeMap<NodeState, usize>,
    pub releases: usize,
    /// It is being destroyed: since when, and who asked for it.
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

/// What became of the end of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DestroyResponse {
    pub env: EnvName,
    /// How many nodes it had.
    pub nodes: usize,
    /// Whether all of it is gone. False if that takes longer than the server waits: it goes on by itself.
    pub gone: bool,
    pub revision: Revision,
}
