//! Carries out the requests of operators: start a rollout, or send one a command.
//!
//! A request is decided on a state no older than the request itself. After a conflict, or when the outcome of a commit is
//! unknown, it is decided again on the current state.

use std::sync::Arc;

use muster_core::fleet::Fleet;
use muster_core::names::{EnvName, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::{PlanRequest, RolloutPlan, StartTarget};
use muster_core::rollout::record::RolloutPhase;
use muster_core::txn::{Revision, Txn};
use thiserror::Error;

use super::io::{CommitResult, IoRequest, IoResult, NextAction, RolloutConfig, check_gate_commands};
use super::rollback::RollbackPlanError;
use crate::command::{CommandRefused, RolloutCommand, apply_command};
use crate::decision::DecisionInput;
use crate::plan::order::draw;
use crate::plan::{PlanError, Request, plan, plan_differences};
use crate::record_limit;
use crate::start::{StartOptions, StartRefused, check_supersede, rollout_of_request, start};

/// A request of an operator, and how it is decided.
pub trait OperatorRequest {
    type Outcome;
    type Error;
    /// Conflicts before the request fails as contended.
    const MAX_TRIES: usize;

    /// Decides the request. Each try begins with [`IoResult::Start`] and continues with the results of the IO that it
    /// requests. `may_be_committed`: the commit of an earlier try has an unknown outcome.
    fn decide(
        &mut self,
        input: &DecisionInput<'_>,
        io: IoResult,
        may_be_committed: bool,
    ) -> Result<RequestDecision<Self::Outcome>, Self::Error>;

    /// Adds the revision of the commit to the outcome.
    fn committed_at(outcome: Self::Outcome, revision: Revision) -> Self::Outcome;

    /// The error after [`Self::MAX_TRIES`] conflicts.
    fn contended(&self, env: &EnvName) -> Self::Error;
}

#[derive(Clone, Debug)]
pub enum RequestDecision<D> {
    Io(IoRequest),
    /// The outcome holds once this is committed.
    Write(Txn, D),
    /// The outcome holds already.
    AlreadyDone(D),
    /// The state changed since the try began: decide again.
    Retry,
}

/// Runs one [`OperatorRequest`] until it is done or refused.
#[derive(Clone, Debug)]
pub struct RequestExecutor<R: OperatorRequest> {
    request: R,
    tries: usize,
    may_be_committed: bool,
    waits_for: RequestIo<R::Outcome>,
}

#[derive(Clone, Debug, Default)]
enum RequestIo<D> {
    #[default]
    StoreRevision,
    View,
    OfRequest,
    Commit(D),
    /// The view shows the commit.
    ViewOfCommit(D),
}

impl<R: OperatorRequest> RequestExecutor<R> {
    /// Returns the executor with its first IO request.
    pub fn new(request: R) -> (Self, IoRequest) {
        let waits_for = RequestIo::StoreRevision;
        (Self { request, tries: 1, may_be_committed: false, waits_for }, IoRequest::StoreRevision)
    }

    /// Continues with the result of the last action.
    pub fn next(&mut self, input: &DecisionInput<'_>, io: IoResult) -> Result<NextAction<Txn, R::Outcome>, R::Error> {
        match (std::mem::take(&mut self.waits_for), io) {
            (RequestIo::StoreRevision, IoResult::StoreRevision(revision)) => {
                self.waits_for = RequestIo::View;
                Ok(NextAction::Io(IoRequest::AwaitView(revision)))
            }
            (RequestIo::View, IoResult::ViewReached) => self.decide(input, IoResult::Start),
            (RequestIo::OfRequest, io) => self.decide(input, io),
            (RequestIo::Commit(outcome), IoResult::Commit(CommitResult::Committed(revision))) => {
                self.waits_for = RequestIo::ViewOfCommit(R::committed_at(outcome, revision));
                Ok(NextAction::Io(IoRequest::AwaitView(revision)))
            }
            (RequestIo::ViewOfCommit(outcome), IoResult::ViewReached) => Ok(NextAction::Done(outcome)),
            (RequestIo::Commit(_), IoResult::Commit(CommitResult::Unknown)) => {
                self.may_be_committed = true;
                self.retry(input)
            }
            (_, _) => self.retry(input),
        }
    }

    fn decide(&mut self, input: &DecisionInput<'_>, io: IoResult) -> Result<NextAction<Txn, R::Outcome>, R::Error> {
        match self.request.decide(input, io, self.may_be_committed)? {
            RequestDecision::Io(request) => {
                self.waits_for = RequestIo::OfRequest;
                Ok(NextAction::Io(request))
            }
            RequestDecision::Write(txn, outcome) => {
                self.waits_for = RequestIo::Commit(outcome);
                Ok(NextAction::Commit(txn))
            }
            RequestDecision::AlreadyDone(outcome) => Ok(NextAction::Done(outcome)),
            RequestDecision::Retry => self.retry(input),
        }
    }

    fn retry(&mut self, input: &DecisionInput<'_>) -> Result<NextAction<Txn, R::Outcome>, R::Error> {
        if self.tries >= R::MAX_TRIES {
            return Err(self.request.contended(&input.fleet.env));
        }
        self.tries += 1;
        self.waits_for = RequestIo::StoreRevision;
        Ok(NextAction::Io(IoRequest::StoreRevision))
    }
}

#[derive(Debug, Error)]
pub enum StartRolloutError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("gate check {check:?} runs a command that is not in the environment file")]
    ForeignCommand { check: String },
    #[error("the plan is for environment {0}")]
    OtherEnv(EnvName),
    #[error("the plan is out of date: the environment changed after it was made: {}", .0.join("; "))]
    StalePlan(Vec<String>),
    #[error(transparent)]
    Refused(#[from] StartRefused),
    #[error(transparent)]
    RollbackPlan(#[from] RollbackPlanError),
    #[error("too many concurrent requests start rollouts of {0}")]
    Contended(EnvName),
}

/// A rollout that was started, by this request or by the same one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedRollout {
    pub id: RolloutId,
    pub from: Option<Version>,
    pub to: Version,
    pub at_once: bool,
    pub changed: bool,
    pub superseded: Option<RolloutId>,
    pub revision: Revision,
}

/// The outcome of [`StartRollout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartOutcome {
    Started(StartedRollout),
    NoOp(AlreadyAtVersion),
}

/// Every node has validated the version already. A rollout would move no node, and would still become the latest one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlreadyAtVersion {
    pub to: Version,
    pub nodes: usize,
    /// The active rollout, if there was ever one.
    pub by: Option<RolloutId>,
    pub revision: Revision,
}

/// Fills in what a request leaves open from the configuration of the environment.
pub fn resolve_request(request: PlanRequest, config: RolloutConfig, fleet: &Fleet) -> Request {
    // The seed differs from rollout to rollout, since otherwise the same node would always go first. It stays the same
    // until the next rollout starts: the plan that was shown is the plan that is started.
    let last = fleet.rollouts().keys().next_back().copied().unwrap_or_default();
    let seed = request.seed.unwrap_or_else(|| draw(last.next().0, request.to.as_str()));
    Request {
        to: request.to,
        strategy: request.strategy.or(config.strategy).unwrap_or_default(),
        after: config.after,
        seed,
        at_once: request.at_once,
        allow_older: request.allow_older,
        rolls_back: None,
    }
}

/// A request to start a rollout.
#[derive(Clone, Debug)]
pub struct StartRollout {
    pub what: StartTarget,
    pub options: StartOptions,
    /// The plan that is being stored, with the revision of `rollouts/active` when it was made.
    plan: Option<(Arc<RolloutPlan>, Option<Revision>)>,
}

/// The revision of `rollouts/active`.
fn active_revision(fleet: &Fleet) -> Option<Revision> {
    fleet.active_rollout_pointer().map(|(_, at)| at)
}

impl StartRollout {
    pub fn new(what: StartTarget, options: StartOptions) -> Self {
        Self { what, options, plan: None }
    }
}

impl OperatorRequest for StartRollout {
    type Outcome = StartOutcome;
    type Error = StartRolloutError;
    /// Enough for two concurrent starts while the fleet grows.
    const MAX_TRIES: usize = 8;

    fn decide(
        &mut self,
        input: &DecisionInput<'_>,
        io: IoResult,
        may_be_committed: bool,
    ) -> Result<RequestDecision<StartOutcome>, StartRolloutError> {
        match (self.plan.take(), io) {
            (_, IoResult::Config(config)) => {
                let plan = Arc::new(make_plan(input, &self.what, *config)?);
                if let Some(already) = already_at_version(input.fleet, &plan) {
                    return Ok(RequestDecision::AlreadyDone(StartOutcome::NoOp(already)));
                }
                self.plan = Some((plan.clone(), active_revision(input.fleet)));
                Ok(RequestDecision::Io(IoRequest::SavePlan(plan)))
            }
            // Another rollout started while the plan was being stored, and the plan may be wrong now.
            (Some((_, on)), IoResult::PlanSaved(_)) if on != active_revision(input.fleet) => Ok(RequestDecision::Retry),
            (Some((plan, _)), IoResult::PlanSaved(digest)) => {
                let open = input.fleet.active_rollout_record().filter(|(record, _)| record.phase.is_open());
                let superseded = open.map(|(record, _)| record.id);
                let start = start(input, &plan, &digest, self.options.clone())?;
                // The same request started it a moment ago.
                let Some(txn) = start.txn else { return Ok(RequestDecision::Retry) };
                Ok(RequestDecision::Write(txn, StartOutcome::Started(started(start.id, &plan, superseded))))
            }
            (_, _) => {
                if let Some(started) = started_by(input.fleet, &self.options.request, may_be_committed) {
                    return Ok(RequestDecision::AlreadyDone(StartOutcome::Started(started)));
                }
                // Checked before planning: an open rollout is reported before an older version is refused.
                check_supersede(input.fleet, self.options.supersede)?;
                Ok(RequestDecision::Io(IoRequest::LoadConfig { required: true }))
            }
        }
    }

    fn committed_at(outcome: StartOutcome, revision: Revision) -> StartOutcome {
        match outcome {
            StartOutcome::Started(started) => StartOutcome::Started(StartedRollout { revision, ..started }),
            no_op @ StartOutcome::NoOp(_) => no_op,
        }
    }

    fn contended(&self, env: &EnvName) -> StartRolloutError {
        StartRolloutError::Contended(env.clone())
    }
}

fn make_plan(
    input: &DecisionInput<'_>,
    what: &StartTarget,
    config: RolloutConfig,
) -> Result<RolloutPlan, StartRolloutError> {
    let given_strategy = match what {
        StartTarget::Now(request) => request.strategy.as_ref(),
        StartTarget::Plan(given) => Some(&given.strategy),
    };
    given_strategy.map_or(Ok(()), |strategy| check_gate_commands(strategy, &config))?;
    let (request, given) = match what {
        StartTarget::Now(request) => (resolve_request(request.clone(), config, input.fleet), None),
        StartTarget::Plan(given) if given.env != input.fleet.env => {
            return Err(StartRolloutError::OtherEnv(given.env.clone()));
        }
        // The order of the roles is always that of the current design.
        StartTarget::Plan(given) => (Request { after: config.after, ..Request::from_plan(given) }, Some(given)),
    };
    let plan = plan(input, &request)?;
    let differences = given.map(|given| plan_differences(given, &plan)).unwrap_or_default();
    if differences.is_empty() {
        return Ok(plan);
    }
    Err(StartRolloutError::StalePlan(differences.iter().map(ToString::to_string).collect()))
}

/// True if a plan is a no-op: no node moves, no rollout ends by it, and nodes that join later get the same version.
fn already_at_version(fleet: &Fleet, plan: &RolloutPlan) -> Option<AlreadyAtVersion> {
    let chosen = fleet.desired().filter(|chosen| chosen.version == plan.to)?;
    let base = fleet.base().filter(|base| base.version == plan.to)?;
    // A request with `allow_older` adds that permission.
    let is_allowed = !plan.allow_older || chosen.allow_older && base.allow_older;
    let active = fleet.active_rollout_record().map(|(record, _)| record);
    let is_over = active.is_none_or(|record| !record.phase.is_open());
    // A plan with `at_once` also moves the nodes that were skipped.
    let moves_skipped = plan.at_once && active.is_some_and(|record| !record.operator.skipped.is_empty());
    let is_no_op = plan.waves.is_empty() && is_allowed && is_over && !moves_skipped;
    is_no_op.then(|| AlreadyAtVersion {
        to: plan.to.clone(),
        nodes: plan.already.len(),
        by: active.map(|record| record.id),
        revision: fleet.revision,
    })
}

/// The rollout that starts with the transaction that is about to be committed.
pub(super) fn started(id: RolloutId, plan: &RolloutPlan, superseded: Option<RolloutId>) -> StartedRollout {
    let RolloutPlan { from, to, at_once, .. } = plan;
    let (from, to, at_once) = (from.clone(), to.clone(), *at_once);
    StartedRollout { id, from, to, at_once, changed: true, superseded, revision: Revision::default() }
}

/// The rollout that a request has started before.
pub(super) fn started_by(fleet: &Fleet, request: &str, may_be_committed: bool) -> Option<StartedRollout> {
    let record = rollout_of_request(fleet, request)?;
    // Its transaction wrote `current_version`, and no later rollout has written it since. Generations of an at-once rollout
    // count from that revision.
    let is_active = fleet.active_rollout_pointer().is_some_and(|(active, _)| active.id == record.id);
    let chosen = fleet.current_version().map(|(_, at)| at).filter(|_| is_active);
    Some(StartedRollout {
        id: record.id,
        from: record.from.clone(),
        to: record.to.clone(),
        at_once: record.at_once,
        // The try with the unknown outcome was committed.
        changed: may_be_committed,
        superseded: None,
        revision: chosen.unwrap_or(fleet.revision),
    })
}

#[derive(Debug, Error)]
pub enum OperatorCommandError {
    #[error("there is no rollout {0}")]
    UnknownRollout(RolloutId),
    #[error(transparent)]
    Refused(#[from] CommandRefused),
    #[error("the rollout record cannot be serialised as JSON")]
    Serialize(#[from] serde_json::Error),
    #[error("too many concurrent writes to rollout {0}")]
    Contended(RolloutId),
}

/// The outcome of [`OperatorCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutcome {
    pub phase: RolloutPhase,
    pub changed: bool,
    pub revision: Revision,
}

/// An operator's command to a rollout.
///
/// It rewrites the rollout record under its revision, as every step does: once it is acknowledged, no decision that was made
/// before it takes effect. Two concurrent commands both take effect, in either order.
///
/// It takes effect once, however often it is retried: its request id is written together with its change. Otherwise a
/// promotion whose answer was lost could promote the next wave too.
#[derive(Clone, Debug)]
pub struct OperatorCommand {
    pub id: RolloutId,
    pub command: RolloutCommand,
    pub by: String,
    /// Chosen by the client.
    pub request: String,
}

/// Request ids that a record remembers. A client retries within seconds.
const REMEMBERED_REQUESTS: usize = 16;

impl OperatorRequest for OperatorCommand {
    type Outcome = CommandOutcome;
    type Error = OperatorCommandError;
    /// A running rollout rewrites its record at each step, and any of these steps can conflict with a command.
    const MAX_TRIES: usize = 32;

    fn decide(
        &mut self,
        input: &DecisionInput<'_>,
        io: IoResult,
        may_be_committed: bool,
    ) -> Result<RequestDecision<CommandOutcome>, OperatorCommandError> {
        let revision = input.fleet.revision;
        // In any rollout: another one may be active by now.
        let mut rollouts = input.fleet.rollouts().values();
        if let Some((record, _)) = rollouts.find(|(record, _)| record.operator.command_ids.contains(&self.request)) {
            let outcome = CommandOutcome { phase: record.phase.clone(), changed: true, revision };
            return Ok(RequestDecision::AlreadyDone(outcome));
        }
        let rollouts = input.fleet.rollouts();
        let (record, at) = rollouts.get(&self.id).ok_or(OperatorCommandError::UnknownRollout(self.id))?;
        let plan = if let IoResult::Plan(plan) = io {
            plan.ok()
        } else if self.command.needs_plan() {
            return Ok(RequestDecision::Io(IoRequest::LoadPlan(record.plan.clone())));
        } else {
            None
        };
        Ok(match apply_command(plan.as_deref(), record, &self.command, &self.by, input)? {
            Some(mut effect) => {
                let requests = &mut effect.record.operator.command_ids;
                requests.drain(..(requests.len() + 1).saturating_sub(REMEMBERED_REQUESTS));
                requests.push(self.request.clone());
                record_limit::fit(&mut effect.record);
                let txn = effect.txn(input.fleet, *at)?;
                RequestDecision::Write(txn, CommandOutcome { phase: effect.record.phase, changed: true, revision })
            }
            // A try with an unknown outcome may have been committed.
            None => RequestDecision::AlreadyDone(CommandOutcome {
                phase: record.phase.clone(),
                changed: may_be_committed,
                revision,
            }),
        })
    }

    fn committed_at(outcome: CommandOutcome, revision: Revision) -> CommandOutcome {
        CommandOutcome { revision, ..outcome }
    }

    fn contended(&self, _: &EnvName) -> OperatorCommandError {
        OperatorCommandError::Contended(self.id)
    }
}
