//! The way back from a rollout: to the last version that a whole one has validated, with the same budgets.

use std::sync::Arc;

use muster_core::names::Version;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use thiserror::Error;

use super::need::{Got, Need};
use crate::plan::{PlanError, Request, plan};
use crate::sight::Sight;
use crate::start::stable_version;

#[derive(Debug, Error)]
pub enum NoWayBack {
    #[error("there is no rollout {0}")]
    Unknown(RolloutId),
    #[error("rollout {id} to {to} cannot be rolled back: no other version was ever validated by a whole rollout")]
    NothingToGoBackTo { id: RolloutId, to: Version },
    #[error(transparent)]
    NoPlan(#[from] PlanError),
}

/// It is being planned.
#[derive(Clone, Debug)]
pub(super) struct WayBack {
    of: RolloutId,
    at: At,
}

#[derive(Clone, Debug, Default)]
enum At {
    #[default]
    Beginning,
    /// The plan of the rollout that is gone back from is being read.
    Reading {
        to: Version,
    },
    /// That cannot be read: the environment is asked how it wants to be moved.
    Asking {
        to: Version,
    },
    Keeping(Arc<RolloutPlan>),
}

pub(super) enum Going {
    Needs(Need),
    /// The plan is there, and kept under this name.
    Ready {
        plan: Arc<RolloutPlan>,
        digest: String,
    },
}

impl WayBack {
    pub(super) fn from(of: RolloutId) -> Self {
        Self { of, at: At::Beginning }
    }

    pub(super) fn next(&mut self, sight: &Sight<'_>, got: Got) -> Result<Going, NoWayBack> {
        match (std::mem::take(&mut self.at), got) {
            (At::Reading { to }, Got::Plan(Ok(there))) => {
                let there = Request::of(there.plan());
                self.plan(sight, Request { to, ..there })
            }
            // A way back must be found even then.
            (At::Reading { to }, Got::Plan(Err(_))) => {
                self.at = At::Asking { to };
                Ok(Going::Needs(Need::Way { required: false }))
            }
            (At::Asking { to }, Got::Way(way)) => {
                let (strategy, after, seed) = (way.strategy.unwrap_or_default(), way.after, self.of.0);
                let (at_once, allow_older, rolls_back) = (false, true, None);
                self.plan(sight, Request { to, strategy, after, seed, at_once, allow_older, rolls_back })
            }
            (At::Keeping(plan), Got::Kept(digest)) => Ok(Going::Ready { plan, digest }),
            (_, _) => self.begin(sight),
        }
    }

    fn begin(&mut self, sight: &Sight<'_>) -> Result<Going, NoWayBack> {
        let (record, _) = sight.fleet.rollouts().get(&self.of).ok_or(NoWayBack::Unknown(self.of))?;
        let Some(to) = stable_version(sight.fleet, self.of) else {
            return Err(NoWayBack::NothingToGoBackTo { id: self.of, to: record.to.clone() });
        };
        self.at = At::Reading { to };
        Ok(Going::Needs(Need::Plan(record.plan.clone())))
    }

    fn plan(&mut self, sight: &Sight<'_>, request: Request) -> Result<Going, NoWayBack> {
        let back = Request { at_once: false, allow_older: true, rolls_back: Some(self.of), ..request };
        let plan = Arc::new(plan(sight, &back)?);
        self.at = At::Keeping(plan.clone());
        Ok(Going::Needs(Need::Keep(plan)))
    }
}
