//! Rollouts: what is planned, started, followed and said about them.

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

pub use muster_core::rollout::request::{PlanRequest, StartRequest, StartTarget};

/// What would happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanResponse {
    pub plan: RolloutPlan,
    /// Names the plan: the digest of the blob that it is kept as.
    pub digest: String,
    /// The revision of the design that the nodes follow, and whose order of roles was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub design: Option<DesignRevision>,
    pub strategy_from: StrategySource,
    /// What it was made from.
    pub revision: Revision,
}

/// Where the strategy of a plan comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StrategySource {
    /// The environment's file.
    Environment,
    /// The request.
    Given,
    /// Nobody has said anything: what Muster does by itself.
    Default,
}

/// What became of a start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum StartResponse {
    Started(RolloutStarted),
    AlreadyThere(AlreadyAtVersion),
}

impl StartResponse {
    /// The rollout, unless there was nothing to start.
    pub fn started(self) -> Option<RolloutStarted> {
        match self {
            StartResponse::Started(started) => Some(started),
            StartResponse::AlreadyThere(_) => None,
        }
    }
}

/// Every node runs the version already: nothing was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlreadyAtVersion {
    pub to: Version,
    /// Always false.
    pub changed: bool,
    /// How many nodes that are.
    pub nodes: u32,
    /// The last one that was started, if there was one.
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
    /// False if the same request had started it already.
    pub changed: bool,
    /// The rollout that ended with this one's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded: Option<RolloutId>,
    /// The revision at which it is visible.
    pub revision: Revision,
}

/// How a rollout stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RolloutStatus {
    pub record: RolloutRecord,
    /// When its record was last written.
    pub record_at: Revision,
    /// The waves of the plan; none if the plan cannot be read.
    pub waves: Vec<WaveRow>,
    /// Nodes that ran the target before it began.
    pub already: u32,
    /// All nodes that are moved.
    pub counts: NodeCounts,
    /// What holds it up now, the widest first; nothing once it has ended.
    pub holds: Vec<Hold>,
    /// Nodes that have failed now, with what went wrong; the first [`FAILED_SHOWN`].
    pub failed: Vec<FailedNode>,
    /// Nodes that use the budget up now.
    pub slots: Vec<SlotRow>,
    pub strategy: Option<Strategy>,
    pub predicted: Option<Prediction>,
    /// Why the plan cannot be read, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The rollout that goes back from this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_by: Option<RolloutId>,
    /// The version that a rollback would go to: the newest that a whole rollout has validated. None of one that is itself a
    /// way back: that is not taken back unless it is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<Version>,
    /// Of one that goes back and decides what nodes run: nodes that it leaves where they are, at another version than the one
    /// that it goes to; the first [`LEFT_ALONE_SHOWN`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<UnmovedNode>,
    /// How many those are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_alone_count: u32,
    /// How many nodes of the design are told to run each version now.
    #[serde(default)]
    #[schema(value_type = std::collections::BTreeMap<String, u32>)]
    pub told: std::collections::BTreeMap<Version, u32>,
    /// As of when, by the server's clock.
    #[schema(value_type = String, format = DateTime)]
    pub now: Timestamp,
    pub revision: Revision,
}

/// So many failed nodes are shown with what went wrong.
pub const FAILED_SHOWN: usize = 20;

/// So many nodes that are left alone are named.
pub const LEFT_ALONE_SHOWN: usize = 20;

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A node that a way back does not take along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnmovedNode {
    pub node: NodeName,
    /// What it should run.
    pub version: Version,
    /// Who told it so, if that was another rollout than the one that is gone back from; else somebody has set it aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_by: Option<RolloutId>,
}

/// One wave of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaveRow {
    /// Counted from 1, as the strategy and the order of roles have it.
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
    /// In the order of the plan. Empty if the question was for numbers alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeProgress>,
}

/// A node that was granted something and uses the budget up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlotRow {
    pub node: NodeName,
    pub role: Role,
    pub rollout: RolloutId,
    pub version: Version,
    #[serde(flatten)]
    pub state: RolloutNodeState,
    #[schema(value_type = String, format = DateTime)]
    pub granted: Timestamp,
    /// Fences it: the revision of the grant, which is the generation that the node was told.
    pub fence: Revision,
    /// When the grant expires, as it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires: Option<Timestamp>,
    /// When it counts as failed if it is not healthy by then. While it waits for others, that is not when the grant expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
}

/// A rollout in the history.
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
    /// It decides what nodes run that were granted nothing.
    pub active: bool,
}

/// The rollout of an environment, in a line of its status.
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
    /// Which wave of the plan goes on, from 1, of how many.
    pub wave: u32,
    pub waves: u32,
    pub healthy: u32,
    pub failed: u32,
    pub nodes: u32,
    /// What holds it up, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<Hold>,
    /// What to type next, if it is somebody's turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Says something to a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperateRequest {
    /// Why, for whoever looks at it later; of `pause` and `abort`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Of `promote`: nobody has to promote a later wave either.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// Of `skip` and `retry`, by name or host name. `retry` without any: all that have failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Made up by whoever asks. The same request again is the same word, and is said once; of `rollback`, which must have one:
    /// it is answered with the same rollout.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request: String,
    /// Of `rollback`: also if the rollout is itself the way back from another one. Without it, such a one is refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undo_rollback: bool,
    /// Who says it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperateResponse {
    pub id: RolloutId,
    #[serde(flatten)]
    pub phase: RolloutPhase,
    /// False if it was so already.
    pub changed: bool,
    /// The nodes that it was about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeName>,
    /// The revision at which it is visible.
    pub revision: Revision,
}
