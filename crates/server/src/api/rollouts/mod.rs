//! Rollouts, from their plan to their end.

pub(crate) mod list;
pub(crate) mod operate;
pub(crate) mod plan;
pub(crate) mod refuse;
pub(crate) mod rollback;
pub(crate) mod show;
pub(crate) mod slots;
pub(crate) mod start;

use muster_core::rollout::RolloutId;
use muster_wire::problem::{Code, Problem};
use serde::Deserialize;

use super::answer::Refusal;
use super::scope::Scope;
use crate::App;

/// The plan of 50,000 nodes is below this.
pub(crate) const BODY_LIMIT: usize = 16 * 1024 * 1024;

/// A rollout by its number, or `active`: the one that decides what nodes run.
#[derive(Debug, Deserialize)]
pub(crate) struct RolloutPath {
    id: String,
}

impl RolloutPath {
    pub(crate) fn id(&self, app: &App, scope: &Scope) -> Result<RolloutId, Refusal> {
        if self.id == "active" {
            return active(app, scope);
        }
        let id = RolloutId::parse(&self.id);
        id.ok_or_else(|| {
            Refusal::invalid(format!("{:?} is no rollout: expected a number from 1, or `active`", self.id))
        })
    }
}

/// The rollout that decides what nodes run.
pub(crate) fn active(app: &App, scope: &Scope) -> Result<RolloutId, Refusal> {
    let active = scope.ask(app, |fleet| fleet.active_rollout().map(|(active, _)| active.id))?;
    active.ok_or_else(|| {
        let problem = Problem::new(Code::UnknownRollout, format!("{} has never had a rollout", scope.env));
        Refusal(problem.hint("start one with `muster rollout start VERSION`, or look at a plan of it first"))
    })
}

/// A rollout that is not remembered.
pub(crate) fn unknown(id: RolloutId) -> Refusal {
    let problem = Problem::new(Code::UnknownRollout, format!("there is no rollout {id}"));
    Refusal(problem.hint("`muster rollout history` lists those that are remembered"))
}
