//! What is going to happen, node by node, before it does. A plan is made once, kept as a blob, and carried out as it is.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::{EnvName, NodeName, Role, Version};
use crate::node::status::NodeState;

use crate::rollout::RolloutId;
use crate::rollout::strategy::{Promote, Strategy};

/// The format that this code reads and writes.
pub const FORMAT: u32 = 1;

/// The waves of a rollout, and all that they follow from. The same world, strategy and seed give the same plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutPlan {
    pub format: u32,
    pub env: EnvName,
    /// What nodes should run before that were granted nothing else; none before the first version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Version>,
    pub to: Version,
    /// Digest of the release that is gone to: the same name need not be the same content in a restored store.
    pub digest: String,
    /// Whether nodes may go to it from a later release.
    #[serde(default)]
    pub allow_older: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolls_back: Option<RolloutId>,
    /// Everybody in one transaction: the waves are there to be looked at.
    #[serde(default)]
    pub at_once: bool,
    /// Decides the order among equals.
    pub seed: u64,
    pub strategy: Strategy,
    /// Which roles each role comes after.
    #[serde(default)]
    pub after: BTreeMap<Role, BTreeSet<Role>>,
    pub waves: Vec<PlannedWave>,
    pub budgets: Budgets,
    /// Nodes that run the target already: nothing is done with them, and they count for the budget. Where a rollout goes
    /// back, also those that never went or were set aside, whether they are well or not.
    #[serde(default)]
    pub already: BTreeSet<NodeName>,
    /// Nodes that are not well before it begins. They use the budget up, unless their machines are still being made; those
    /// that can be repaired come first.
    #[serde(default)]
    pub unwell: Vec<UnhealthyNode>,
    pub predicted: Prediction,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedWave {
    /// Which stage it belongs to, from 1: roles that have no order between them.
    pub stage: u32,
    /// Which wave of the strategy it is, from 1. Those without new nodes are left out.
    pub wave: u32,
    /// The first of its stage.
    pub canary: bool,
    /// In the order in which they are granted, as far as the budget lets them.
    pub nodes: Vec<PlannedNode>,
    #[schema(value_type = String)]
    pub soak: SignedDuration,
    pub promote: Promote,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedNode {
    pub node: NodeName,
    pub role: Role,
    /// Its value of the label that has a budget of its own; empty if it does not have that label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// It is not well now, and this may help: it costs no budget, and does not count if it fails again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repair: bool,
}

/// How many may be unavailable, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Budgets {
    pub roles: BTreeMap<Role, RoleBudget>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub domains: BTreeMap<String, u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleBudget {
    /// How many nodes the role has.
    pub nodes: u32,
    /// A share is one of those whose machines are there.
    pub max_unavailable: u32,
}

/// A node that is not well before a rollout begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnhealthyNode {
    pub node: NodeName,
    /// How it stands.
    pub word: NodeState,
    /// Why, in a sentence.
    pub why: String,
    /// Whether the rollout may repair it; else it waits until its agent is there, or somebody ends its pause.
    pub repaired: bool,
}

/// How long it will take, if nothing goes wrong and nobody is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Prediction {
    /// How long one node takes from its grant until it is validated: the median of what they took lately.
    #[schema(value_type = String)]
    pub node: SignedDuration,
    /// Whether that was measured; else it is a guess.
    pub measured: bool,
    /// The whole rollout, soaks included, windows and promotions not.
    #[schema(value_type = String)]
    pub total: SignedDuration,
}

impl RolloutPlan {
    /// All nodes that are moved, in their order.
    pub fn nodes(&self) -> impl Iterator<Item = &PlannedNode> {
        self.waves.iter().flat_map(|wave| &wave.nodes)
    }

    pub fn node_count(&self) -> usize {
        self.waves.iter().map(|wave| wave.nodes.len()).sum()
    }
}
