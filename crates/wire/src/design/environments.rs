//! An environment as whoever plans and destroys it sees it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::design_state::{DesignRevision, Destroying};
use muster_core::names::{EnvName, Role, Version};
use muster_core::standing::Word;
use muster_core::txn::Revision;

/// Where an environment's design stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DesignNumbers {
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
    pub design: DesignNumbers,
    /// In the order of the design.
    pub roles: Vec<RoleRow>,
    /// How many nodes stand where.
    #[schema(value_type = BTreeMap<String, usize>)]
    pub counts: BTreeMap<Word, usize>,
    pub releases: usize,
    /// It is being destroyed: since when, and who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroying: Option<Destroying>,
    pub revision: Revision,
}

/// One role of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleRow {
    pub role: Role,
    pub nodes: usize,
    #[schema(value_type = BTreeMap<String, usize>)]
    pub counts: BTreeMap<Word, usize>,
}

/// What became of the end of an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Destroyed {
    pub env: EnvName,
    /// How many nodes it had.
    pub nodes: usize,
    /// Whether all of it is gone. False if that takes longer than the server waits: it goes on by itself.
    pub gone: bool,
    pub revision: Revision,
}
