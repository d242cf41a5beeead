//! Client methods for rollouts.

use std::fmt::Display;
use std::time::Duration;

use reqwest::Method;

use muster_core::names::{EnvName, Version};
use muster_core::rollout::RolloutId;
use muster_core::txn::Revision;

use super::{ANSWER, Client, ClientError};
use crate::operator::{Page, TriggerUpdate, UpdateResponse};
use crate::rollout::{
    OperateRequest, OperateResponse, PlanRequest, PlanResponse, RolloutRow, RolloutStarted, RolloutStatus, SlotRow,
    StartRequest, StartResponse,
};

/// Reference to a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutRef {
    /// The active rollout, in progress or ended.
    Active,
    Id(RolloutId),
}

impl Display for RolloutRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RolloutRef::Active => f.write_str("active"),
            RolloutRef::Id(id) => id.fmt(f),
        }
    }
}

impl From<RolloutId> for RolloutRef {
    fn from(id: RolloutId) -> Self {
        Self::Id(id)
    }
}

/// Query of a rollout status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusQuery {
    /// Wait for a change after this revision, at most `wait`.
    pub after: Option<Revision>,
    pub wait: Duration,
    /// Only numbers, without the nodes of each wave.
    pub numbers: bool,
}

/// Operator command to a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutVerb {
    Pause,
    Resume,
    Abort,
    Promote,
    Skip,
    Retry,
}

impl RolloutVerb {
    pub fn word(self) -> &'static str {
        match self {
            RolloutVerb::Pause => "pause",
            RolloutVerb::Resume => "resume",
            RolloutVerb::Abort => "abort",
            RolloutVerb::Promote => "promote",
            RolloutVerb::Skip => "skip",
            RolloutVerb::Retry => "retry",
        }
    }
}

impl Client {
    pub async fn plan_rollout(&self, env: &EnvName, request: &PlanRequest) -> Result<PlanResponse, ClientError> {
        self.post(&format!("/v1/envs/{env}/rollouts/plan"), request).await
    }

    pub async fn start_rollout(&self, env: &EnvName, request: &StartRequest) -> Result<StartResponse, ClientError> {
        self.post(&format!("/v1/envs/{env}/rollouts"), request).await
    }

    /// All rollouts that are kept, the newest first.
    pub async fn rollouts(&self, env: &EnvName) -> Result<Page<RolloutRow>, ClientError> {
        self.all_pages(&format!("/v1/envs/{env}/rollouts")).await
    }

    pub async fn rollout(
        &self,
        env: &EnvName,
        rollout: RolloutRef,
        query: StatusQuery,
    ) -> Result<RolloutStatus, ClientError> {
        let mut pairs = vec![("wait_seconds", query.wait.as_secs().to_string())];
        pairs.extend(query.after.map(|after| ("after", after.to_string())));
        pairs.extend(query.numbers.then(|| ("numbers", "true".to_owned())));
        let request = self.request(Method::GET, &format!("/v1/envs/{env}/rollouts/{rollout}"));
        self.send(request.timeout(ANSWER + query.wait).query(&pairs)).await
    }

    /// Sends an operator command to a rollout.
    pub async fn operate_rollout(
        &self,
        env: &EnvName,
        rollout: RolloutRef,
        verb: RolloutVerb,
        operate: &OperateRequest,
    ) -> Result<OperateResponse, ClientError> {
        self.post(&format!("/v1/envs/{env}/rollouts/{rollout}/{}", verb.word()), operate).await
    }

    /// Rolls back to the last version that the whole fleet has validated.
    pub async fn roll_back(
        &self,
        env: &EnvName,
        rollout: RolloutRef,
        operate: &OperateRequest,
    ) -> Result<RolloutStarted, ClientError> {
        self.post(&format!("/v1/envs/{env}/rollouts/{rollout}/rollback"), operate).await
    }

    /// Nodes that use the budget of the rollout.
    pub async fn slots(&self, env: &EnvName) -> Result<Page<SlotRow>, ClientError> {
        self.all_pages(&format!("/v1/envs/{env}/rollouts/slots")).await
    }

    /// Releases the slot of a node.
    pub async fn release_slot(
        &self,
        env: &EnvName,
        node: &str,
        operate: &OperateRequest,
    ) -> Result<OperateResponse, ClientError> {
        self.post(&format!("/v1/envs/{env}/rollouts/slots/{node}/release"), operate).await
    }

    /// Moves all nodes in one transaction, for labs and emergencies.
    pub async fn trigger_at_once(&self, env: &EnvName, version: Version) -> Result<UpdateResponse, ClientError> {
        self.trigger(env, &TriggerUpdate { at_once: true, ..TriggerUpdate::to(version) }).await
    }
}
