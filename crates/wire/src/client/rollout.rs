//! What the client asks of rollouts.

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

/// Which rollout is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutRef {
    /// The one that decides what nodes run, whether or not it goes on.
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

/// How much of a rollout is asked for, and when it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusQuery {
    /// Answer when something of it is newer than this, or when `wait` is over.
    pub after: Option<Revision>,
    pub wait: Duration,
    /// Numbers alone, without the nodes of each wave.
    pub numbers: bool,
}

/// What can be said to a rollout.
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
    /// What would happen.
    pub async fn plan_rollout(&self, env: &EnvName, request: &PlanRequest) -> Result<PlanResponse, ClientError> {
        self.post(&format!("/v1/envs/{env}/rollouts/plan"), request).await
    }

    pub async fn start_rollout(&self, env: &EnvName, request: &StartRequest) -> Result<StartResponse, ClientError> {
        self.post(&format!("/v1/envs/{env}/rollouts"), request).await
    }

    /// All that are remembered, the newest first.
    pub async fn rollouts(&self, env: &EnvName) -> Result<Page<RolloutRow>, ClientError> {
        self.all_pages(&format!("/v1/envs/{env}/rollouts")).await
    }

    pub async fn rollout(
        &self,
        env: &EnvName,
        which: RolloutRef,
        query: StatusQuery,
    ) -> Result<RolloutStatus, ClientError> {
        let mut pairs = vec![("wait_seconds", query.wait.as_secs().to_string())];
        pairs.extend(query.after.map(|after| ("after", after.to_string())));
        pairs.extend(query.numbers.then(|| ("numbers", "true".to_owned())));
        let request = self.request(Method::GET, &format!("/v1/envs/{env}/rollouts/{which}"));
        self.send(request.timeout(ANSWER + query.wait).query(&pairs)).await
    }

    /// Says something to a rollout.
    pub async fn operate_rollout(
        &self,
        env: &EnvName,
        which: RolloutRef,
        verb: RolloutVerb,
        operate: &OperateRequest,
    ) -> Result<OperateResponse, ClientError> {
        self.post(&format!("/v1/envs/{env}/rollouts/{which}/{}", verb.word()), operate).await
    }

    /// Goes back to the last version that a whole rollout has validated.
    pub async fn roll_back(
        &self,
        env: &EnvName,
        which: RolloutRef,
        operate: &OperateRequest,
    ) -> Result<RolloutStarted, ClientError> {
        self.post(&format!("/v1/envs/{env}/rollouts/{which}/rollback"), operate).await
    }

    /// The nodes that use the budget of the rollout up.
    pub async fn slots(&self, env: &EnvName) -> Result<Page<SlotRow>, ClientError> {
        self.get(&format!("/v1/envs/{env}/rollouts/slots")).await
    }

    /// Lets a node no longer count for the budget.
    pub async fn release_slot(
        &self,
        env: &EnvName,
        node: &str,
        operate: &OperateRequest,
    ) -> Result<OperateResponse, ClientError> {
        self.post(&format!("/v1/envs/{env}/rollouts/slots/{node}/release"), operate).await
    }

    /// Moves a whole fleet in one transaction: a lab, an emergency.
    pub async fn trigger_at_once(&self, env: &EnvName, version: Version) -> Result<UpdateResponse, ClientError> {
        self.trigger(env, &TriggerUpdate { at_once: true, ..TriggerUpdate::to(version) }).await
    }
}
