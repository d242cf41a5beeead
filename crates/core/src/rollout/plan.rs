//! Rollout plan: the waves of a rollout, node by node. A plan is made once, stored as a blob, and executed unchanged. Requests
//! to plan or start a rollout, from the command line to the engine.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::{EnvName, NodeName, Role, Version};
use crate::node::status::NodeState;
use crate::rollout::RolloutId;
use crate::rollout::strategy::{Promote, Strategy};

/// Plan format of this version of Muster.
pub const FORMAT: u32 = 1;

/// Plan of a rollout. The same fleet, strategy and seed give the same plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutPlan {
    pub format: u32,
    pub env: EnvName,
    /// Version of nodes without a grant before the rollout. None before the first version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Version>,
    pub to: Version,
    /// Digest of the target release. In a restored store the same version may have other content.
    pub digest: String,
    /// True if nodes may move to it from a release with a higher serial.
    #[serde(default)]
    pub allow_older: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolls_back: Option<RolloutId>,
    /// All nodes move in one transaction. The waves are informational then.
    #[serde(default)]
    pub at_once: bool,
    /// Decides the order among equal nodes.
    pub seed: u64,
    pub strategy: Strategy,
    /// Roles that each role comes after.
    #[serde(default)]
    pub after: BTreeMap<Role, BTreeSet<Role>>,
    pub waves: Vec<PlannedWave>,
    pub budgets: Budgets,
    /// Nodes that already run the target. They are not moved and count for the budget. In a rollback also nodes that
    /// never moved or were skipped, healthy or not.
    #[serde(default)]
    pub already: BTreeSet<NodeName>,
    /// Nodes that are unhealthy before the rollout. They use the budget unless their machines are still being
    /// provisioned. Those that can be repaired come first.
    #[serde(rename = "unwell", default)]
    pub unhealthy: Vec<UnhealthyNode>,
    /// Cordoned nodes that the rollout waits for, with the reason as a sentence. It completes without them only if they are
    /// skipped.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>)]
    pub cordoned: BTreeMap<NodeName, String>,
    pub predicted: Prediction,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedWave {
    /// Stage, from 1. Roles of one stage have no order between them.
    pub stage: u32,
    /// Wave of the strategy, from 1. Waves without new nodes are left out.
    pub wave: u32,
    /// First wave of its stage.
    pub canary: bool,
    /// In the order in which they are granted, as far as the budget allows.
    pub nodes: Vec<PlannedNode>,
    #[schema(value_type = String)]
    pub soak: SignedDuration,
    pub promote: Promote,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedNode {
    pub node: NodeName,
    pub role: Role,
    /// Value of the label that has a budget. None if the node does not have the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The node is unhealthy now and the rollout may repair it. It costs no budget and does not count as a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repair: bool,
}

/// Maximum numbers of unavailable nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Budgets {
    pub roles: BTreeMap<Role, RoleBudget>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub domains: BTreeMap<String, u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RoleBudget {
    /// Number of nodes of the role.
    pub nodes: u32,
    /// A percentage is of the nodes with a provisioned machine.
    pub max_unavailable: u32,
}

/// A node that is unhealthy before a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnhealthyNode {
    pub node: NodeName,
    #[serde(rename = "word")]
    pub state: NodeState,
    /// The reason as a sentence.
    pub why: String,
    /// True if the rollout may repair it. If not, it waits until its agent connects or its pause ends.
    pub repaired: bool,
}

/// Predicted duration without failures and waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Prediction {
    /// Duration of one node from grant to validation: the median of recent ones.
    #[schema(value_type = String)]
    pub node: SignedDuration,
    /// True if the duration was measured. If not, it is an assumption.
    pub measured: bool,
    /// The whole rollout with soak times, without windows and promotions.
    #[schema(value_type = String)]
    pub total: SignedDuration,
}

impl RolloutPlan {
    /// Roles of which most nodes were not healthy when the plan was made, as while a fleet comes up. A canary of such a role
    /// can hardly show that the version breaks a node that worked before.
    pub fn mostly_unhealthy_roles(&self) -> Vec<&Role> {
        let unhealthy: BTreeSet<&NodeName> = self.unhealthy.iter().map(|unhealthy| &unhealthy.node).collect();
        let mut counts: BTreeMap<&Role, u32> = BTreeMap::new();
        for node in self.nodes().filter(|node| unhealthy.contains(&node.node)) {
            *counts.entry(&node.role).or_default() += 1;
        }
        let is_most =
            |role: &Role, count: u32| self.budgets.roles.get(role).is_some_and(|budget| budget.nodes < 2 * count);
        counts.into_iter().filter(|(role, count)| is_most(role, *count)).map(|(role, _)| role).collect()
    }

    /// All nodes that are moved, in their order.
    pub fn nodes(&self) -> impl Iterator<Item = &PlannedNode> {
        self.waves.iter().flat_map(|wave| &wave.nodes)
    }

    pub fn node_count(&self) -> usize {
        self.waves.iter().map(|wave| wave.nodes.len()).sum()
    }
}

/// Request to plan a rollout. Fields that are not given are taken from the environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanRequest {
    pub to: Version,
    /// Replaces the strategy of the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Decides the order among equal nodes. Chosen by the server if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Allow nodes to move to this release from one with a higher serial.
    #[serde(default)]
    pub allow_older: bool,
    /// Move all nodes in one transaction, without waves and budgets.
    #[serde(default)]
    pub at_once: bool,
}

impl PlanRequest {
    /// Request for a version with the environment's strategy.
    pub fn to(version: Version) -> Self {
        Self { to: version, strategy: None, seed: None, allow_older: false, at_once: false }
    }
}

/// Request to start a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartRequest {
    pub what: StartTarget,
    /// Idempotency key, chosen by the client. A repeated request returns the same rollout and starts no other.
    pub request: String,
    /// Replace a rollout that is in progress. Without it, a second rollout is refused.
    #[serde(default)]
    pub supersede: bool,
    /// Operator who starts it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// Plan to start, or the request to plan first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "one value per request")]
pub enum StartTarget {
    /// Start exactly this plan. Refused if the fleet changed since the plan was made.
    Plan(Box<RolloutPlan>),
    /// Plan and start in one step.
    Now(PlanRequest),
}

impl StartTarget {
    /// Version that the rollout moves to.
    pub fn version(&self) -> &Version {
        match self {
            StartTarget::Plan(plan) => &plan.to,
            StartTarget::Now(request) => &request.to,
        }
    }
}
