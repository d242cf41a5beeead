//! Request and response types of the rollout API: plans, starts, status and operator commands.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use muster_core::design::DesignRevision;
use muster_core::names::{NodeName, Role, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::{Prediction, RolloutPlan};
use muster_core::rollout::progress::{Hold, NodeCounts, NodeProgress, RolloutNodeState};
use muster_core::rollout::record::{FailedNode, RolloutPhase, RolloutRecord, WaveState};
use muster_core::rollout::strategy::{Promote, Strategy};
use muster_core::txn::Revision;

pub use muster_core::rollout::plan::{PlanRequest, StartRequest, StartTarget};

/// Response to a plan request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanResponse {
    pub plan: RolloutPlan,
    /// Digest of the plan's blob.
    pub digest: String,
    /// Applied design revision, which gives the order of roles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub design: Option<DesignRevision>,
    pub strategy_from: StrategySource,
    /// Roles that the release has no check for: their nodes are validated with 0 checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<Role>,
    /// Revision that the plan was made from.
    pub revision: Revision,
}

/// Source of a plan's strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StrategySource {
    /// The environment file.
    Environment,
    /// The request.
    Given,
    /// Neither: the default of Muster.
    Default,
}

/// Response to a start request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum StartResponse {
    Started(RolloutStarted),
    AlreadyThere(AlreadyAtVersionResponse),
}

impl StartResponse {
    /// The started rollout. None if there was nothing to start.
    pub fn started(self) -> Option<RolloutStarted> {
        match self {
            StartResponse::Started(started) => Some(started),
            StartResponse::AlreadyThere(_) => None,
        }
    }
}

/// Every node runs the version already. Nothing was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = AlreadyAtVersion)]
pub struct AlreadyAtVersionResponse {
    pub to: Version,
    /// Always false.
    pub changed: bool,
    /// Number of nodes.
    pub nodes: u32,
    /// The last rollout, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutId>,
    pub revision: Revision,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutStarted {
    pub id: RolloutId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Version>,
    pub to: Version,
    /// False if an earlier request with the same key started it.
    pub changed: bool,
    /// Rollout that was superseded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded: Option<RolloutId>,
    /// Revision at which it is visible.
    pub revision: Revision,
}

/// Status of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutStatus {
    pub record: RolloutRecord,
    /// Revision of its record.
    pub record_at: Revision,
    /// Waves of the plan. Empty if the plan cannot be read.
    pub waves: Vec<WaveRow>,
    /// Nodes that ran the target before.
    pub already: u32,
    /// All nodes that are moved.
    pub counts: NodeCounts,
    /// Current holds, the widest first. Empty after the end.
    pub holds: Vec<Hold>,
    /// Failed nodes with their errors, at most [`FAILED_SHOWN`].
    pub failed: Vec<FailedNode>,
    /// Nodes that use the budget.
    pub slots: Vec<SlotRow>,
    pub strategy: Option<Strategy>,
    pub predicted: Option<Prediction>,
    /// Reason why the plan cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Rollout that rolled this one back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_by: Option<RolloutId>,
    /// Target of a rollback: the last version that the whole fleet has validated. None for a rollback, which is
    /// not rolled back by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<Version>,
    /// Of an active rollback: nodes that it does not move and that run another version than its target, at most
    /// [`LEFT_ALONE_SHOWN`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<UnmovedNode>,
    /// Number of these nodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_alone_count: u32,
    /// Number of nodes of the design by desired version.
    #[serde(rename = "told", default)]
    #[schema(value_type = std::collections::BTreeMap<String, u32>)]
    pub desired_versions: std::collections::BTreeMap<Version, u32>,
    /// Clock of the server.
    #[schema(value_type = String, format = DateTime)]
    pub now: Timestamp,
    pub revision: Revision,
}

/// Maximum number of failed nodes in a status.
pub const FAILED_SHOWN: usize = 20;

/// Maximum number of unmoved nodes in a status.
pub const LEFT_ALONE_SHOWN: usize = 20;

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A node that a rollback does not move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnmovedNode {
    pub node: NodeName,
    /// Desired version.
    pub version: Version,
    /// Rollout that granted the version, if it is not the one that is rolled back. None: an operator skipped the node.
    #[serde(rename = "told_by", default, skip_serializing_if = "Option::is_none")]
    pub granted_by: Option<RolloutId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaveRow {
    /// From 1, as in the strategy and the order of roles.
    pub stage: u32,
    pub wave: u32,
    pub canary: bool,
    #[schema(value_type = String)]
    pub soak: SignedDuration,
    pub promote: Promote,
    /// None before it has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<WaveState>,
    #[schema(value_type = BTreeMap<String, NodeCounts>)]
    pub counts: BTreeMap<Role, NodeCounts>,
    /// In the order of the plan. Empty if only numbers were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeProgress>,
}

/// A granted node that uses the budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlotRow {
    pub node: NodeName,
    pub role: Role,
    pub rollout: RolloutId,
    pub version: Version,
    #[serde(flatten)]
    pub state: RolloutNodeState,
    /// Time of the grant.
    #[serde(rename = "started")]
    #[schema(value_type = String, format = DateTime)]
    pub granted: Timestamp,
    /// Revision of the grant, which is the generation that the node was sent.
    pub fence: Revision,
    /// Expiry of the grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires: Option<Timestamp>,
    /// Time at which the node counts as failed if it is not healthy. Differs from `expires` while the node is pending.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
}

/// A rollout in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutRow {
    pub id: RolloutId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Version>,
    pub to: Version,
    #[serde(flatten)]
    pub phase: RolloutPhase,
    #[schema(value_type = String, format = DateTime)]
    pub phase_since: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub started: Timestamp,
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolls_back: Option<RolloutId>,
    #[serde(default)]
    pub at_once: bool,
    pub healthy: u32,
    pub grants: u64,
    /// Decides the version of nodes without a grant.
    pub active: bool,
}

/// Summary of the active rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutBrief {
    pub id: RolloutId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Version>,
    pub to: Version,
    #[serde(flatten)]
    pub phase: RolloutPhase,
    #[schema(value_type = String, format = DateTime)]
    pub phase_since: Timestamp,
    #[serde(default)]
    pub at_once: bool,
    /// Current wave of the plan, from 1, and the number of waves.
    pub wave: u32,
    pub waves: u32,
    pub healthy: u32,
    pub failed: u32,
    pub nodes: u32,
    /// Widest hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<Hold>,
    /// Suggested command, if an operator has to act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Operator command to a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperateRequest {
    /// Reason of `pause` and `abort`, for other operators.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Of `promote`: no later wave needs a promotion either.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// Of `skip` and `retry`: node names or host names. `retry` without nodes: all failed ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Idempotency key, chosen by the client. A repeated command is executed once. Required for `rollback`, which
    /// returns the same rollout.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// Of `rollback`: also roll back a rollback. Refused without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undo_rollback: bool,
    /// Operator who sends it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// Response to an operator command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperateResponse {
    pub id: RolloutId,
    #[serde(flatten)]
    pub phase: RolloutPhase,
    /// False if nothing changed.
    pub changed: bool,
    /// Nodes that the command concerned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeName>,
    /// Revision at which it is visible.
    pub revision: Revision,
}
