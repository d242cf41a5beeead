//! Requests to plan or start a rollout, from the command line to the engine.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::Version;

use super::plan::RolloutPlan;
use super::strategy::Strategy;

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
