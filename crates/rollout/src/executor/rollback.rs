//! Rolls a rollout back: plans a rollout to the last stable version, with the same budgets.

use std::sync::Arc;

use muster_core::names::{EnvName, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::PauseReason;
use muster_core::txn::Revision;
use thiserror::Error;

use super::io::{IoRequest, IoResult};
use super::operator_command::{
    OperatorRequest, RequestDecision, StartRolloutError, StartedRollout, started, started_by,
};
use crate::decision::DecisionInput;
use crate::plan::{PlanError, Request, plan};
use crate::start::{self, StartOptions, StartRefused, stable_version};

#[derive(Debug, Error)]
pub enum RollbackPlanError {
    #[error("there is no rollout {0}")]
    UnknownRollout(RolloutId),
    #[error("rollout {id} to {to} cannot be rolled back: the whole fleet has validated no other version")]
    NoStableVersion { id: RolloutId, to: Version },
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Plans the rollback of one rollout.
#[derive(Clone, Debug)]
pub(super) struct RollbackPlanner {
    rollout: RolloutId,
    waits_for: PlannerIo,
}

#[derive(Clone, Debug, Default)]
enum PlannerIo {
    #[default]
    Nothing,
    /// The plan of the rollout that is rolled back.
    OldPlan {
        to: Version,
    },
    /// The environment's configuration, since that plan cannot be read.
    Config {
        to: Version,
    },
    Save(Arc<RolloutPlan>),
}

pub(super) enum RollbackStep {
    Io(IoRequest),
    /// The plan is stored under this digest.
    Ready {
        plan: Arc<RolloutPlan>,
        digest: String,
    },
}

impl RollbackPlanner {
    pub(super) fn new(rollout: RolloutId) -> Self {
        Self { rollout, waits_for: PlannerIo::Nothing }
    }

    pub(super) fn next(&mut self, input: &DecisionInput<'_>, io: IoResult) -> Result<RollbackStep, RollbackPlanError> {
        match (std::mem::take(&mut self.waits_for), io) {
            (PlannerIo::OldPlan { to }, IoResult::Plan(Ok(old))) => {
                let old = Request::from_plan(old.plan());
                self.plan(input, Request { to, ..old })
            }
            // A rollback must be possible without the old plan.
            (PlannerIo::OldPlan { to }, IoResult::Plan(Err(_))) => {
                self.waits_for = PlannerIo::Config { to };
                Ok(RollbackStep::Io(IoRequest::LoadConfig { required: false }))
            }
            (PlannerIo::Config { to }, IoResult::Config(config)) => {
                let (strategy, after, seed) = (config.strategy.unwrap_or_default(), config.after, self.rollout.0);
                let (at_once, allow_older, rolls_back) = (false, true, None);
                self.plan(input, Request { to, strategy, after, seed, at_once, allow_older, rolls_back })
            }
            (PlannerIo::Save(plan), IoResult::PlanSaved(digest)) => Ok(RollbackStep::Ready { plan, digest }),
            (_, _) => self.start(input),
        }
    }

    fn start(&mut self, input: &DecisionInput<'_>) -> Result<RollbackStep, RollbackPlanError> {
        let rollouts = input.fleet.rollouts();
        let (record, _) = rollouts.get(&self.rollout).ok_or(RollbackPlanError::UnknownRollout(self.rollout))?;
        let Some(to) = stable_version(input.fleet, self.rollout) else {
            return Err(RollbackPlanError::NoStableVersion { id: self.rollout, to: record.to.clone() });
        };
        self.waits_for = PlannerIo::OldPlan { to };
        Ok(RollbackStep::Io(IoRequest::LoadPlan(record.plan.clone())))
    }

    fn plan(&mut self, input: &DecisionInput<'_>, request: Request) -> Result<RollbackStep, RollbackPlanError> {
        let request = Request { at_once: false, allow_older: true, rolls_back: Some(self.rollout), ..request };
        let plan = Arc::new(plan(input, &request)?);
        self.waits_for = PlannerIo::Save(plan.clone());
        Ok(RollbackStep::Io(IoRequest::SavePlan(plan)))
    }
}

/// An operator's request to roll a rollout back.
#[derive(Clone, Debug)]
pub struct RollBackRollout {
    pub id: RolloutId,
    pub options: StartOptions,
    why: PauseReason,
    undo_rollback: bool,
    planner: RollbackPlanner,
    /// The revision of the rollout's record when the plan was made.
    planned_at: Option<Revision>,
}

impl RollBackRollout {
    pub fn new(id: RolloutId, options: StartOptions, why: PauseReason) -> Self {
        Self { id, options, why, undo_rollback: false, planner: RollbackPlanner::new(id), planned_at: None }
    }

    /// Also rolls back a rollout that is itself a rollback. Without this flag a repeated rollback request, or one after an
    /// automatic rollback, would return the fleet to the version that was just left.
    #[must_use]
    pub fn undoing(self, undo_rollback: bool) -> Self {
        Self { undo_rollback, ..self }
    }

    /// Checked before planning: the second of two requests is answered with the first, not with an error of its plan.
    fn check(&self, input: &DecisionInput<'_>) -> Result<(), StartRolloutError> {
        let rollouts = input.fleet.rollouts();
        let (record, _) = rollouts.get(&self.id).ok_or(RollbackPlanError::UnknownRollout(self.id))?;
        start::check_can_roll_back(input.fleet, record)?;
        match record.rolls_back {
            Some(back_from) if !self.undo_rollback => {
                let (id, to) = (record.id, record.to.clone());
                Err(StartRefused::IsRollback { id, back_from, to }.into())
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl OperatorRequest for RollBackRollout {
    type Outcome = StartedRollout;
    type Error = StartRolloutError;
    /// A running rollout rewrites its record at each step, and each of these steps can require another plan.
    const MAX_TRIES: usize = 32;

    fn decide(
        &mut self,
        input: &DecisionInput<'_>,
        io: IoResult,
        may_be_committed: bool,
    ) -> Result<RequestDecision<StartedRollout>, StartRolloutError> {
        if let IoResult::Start = io {
            if let Some(started) = started_by(input.fleet, &self.options.request, may_be_committed) {
                return Ok(RequestDecision::AlreadyDone(started));
            }
            self.check(input)?;
        }
        let next = self.planner.next(input, io)?;
        let rollouts = input.fleet.rollouts();
        let (record, at) = rollouts.get(&self.id).ok_or(RollbackPlanError::UnknownRollout(self.id))?;
        let (plan, digest) = match next {
            RollbackStep::Io(request) => {
                self.planned_at = Some(*at);
                return Ok(RequestDecision::Io(request));
            }
            RollbackStep::Ready { plan, digest } => (plan, digest),
        };
        // The rollout may have granted more nodes while the plan was being stored, and the plan would miss them.
        if self.planned_at != Some(*at) {
            return Ok(RequestDecision::Retry);
        }
        let start = start::roll_back(input, &plan, &digest, self.options.clone(), (record, *at), &self.why)?;
        let Some(txn) = start.txn else { return Ok(RequestDecision::Retry) };
        Ok(RequestDecision::Write(txn, started(start.id, &plan, None)))
    }

    fn committed_at(outcome: StartedRollout, revision: Revision) -> StartedRollout {
        StartedRollout { revision, ..outcome }
    }

    fn contended(&self, env: &EnvName) -> StartRolloutError {
        StartRolloutError::Contended(env.clone())
    }
}
