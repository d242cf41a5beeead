//! Decides the next step of a rollout: its transaction, and when to decide again.
//!
//! A step is a pure function: the same input gives the same result. Once its change is in the store, the next step
//! returns nothing until something changes. It is called after each relevant change of the environment, after each
//! change of its own, and at `recheck`.

mod at_once;
mod facts;
mod failures;
mod grants;
mod indexed_plan;
mod survey;
mod waves;

use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::NodeName;
use muster_core::report::summary::clip;
use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::{
    ActiveRollout, DesiredRecord, FailureCutoff, GateVerdict, PauseReason, RolloutPhase, RolloutRecord,
};
use muster_core::rollout::strategy::{OnFailure, OnInconclusive};
use muster_core::rollout::windows;
use muster_core::txn::{Guard, Op, Revision, Txn, ValuesBefore};

pub use indexed_plan::IndexedPlan;

pub(crate) use at_once::{AtOnceCheck, AtOnceState, first_error_of};
pub(crate) use facts::NodeFacts;
pub(crate) use grants::BudgetTracker;
pub(crate) use indexed_plan::PlanPosition;
pub(crate) use survey::{GrantsAhead, Survey, next_call};
pub(crate) use waves::{WaveAdvance, advance_waves};

use at_once::follow_at_once;

use crate::command::{MAX_NAMED_NODES, MAX_TEXT};
use crate::decision::DecisionInput;
use crate::health::later;
use crate::start::stable_version;

/// The result of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The change to write, in one transaction. None: nothing to do.
    pub change: Option<RolloutChange>,
    /// Index of the wave, from 0, whose gate is to be checked now. The verdict goes to [`gate_verdict_change`].
    pub checks: Option<usize>,
    /// The rollout has failed and is to be rolled back, for this reason. Nothing else happens until then.
    pub roll_back: Option<PauseReason>,
    /// No change before this time, unless a key is written or a connection starts or ends.
    pub recheck: Option<Timestamp>,
}

impl Step {
    fn recheck_at(&mut self, at: Timestamp) {
        self.recheck = Some(self.recheck.map_or(at, |before| before.min(at)));
    }
}

/// The survey of the last step. The next one evaluates only what has changed since.
#[derive(Clone, Debug, Default)]
pub struct KeptSurvey {
    survey: Option<Box<Survey>>,
    ahead: GrantsAhead,
    is_checked: bool,
}

impl KeptSurvey {
    /// Compares each update with a survey of all nodes, in builds with debug assertions. Only where nothing changes during a
    /// decision: in tests and in the simulator.
    pub fn checked() -> Self {
        Self { is_checked: true, ..Self::default() }
    }

    /// Forgets the survey: another rollout follows, if any.
    pub(crate) fn clear(&mut self) {
        self.survey = None;
        self.ahead.clear();
    }

    /// Records grants that were committed at this revision, which the view may not show yet.
    pub(crate) fn granted(&mut self, grants: &[Grant], at: Revision) {
        self.ahead.extend(grants.iter().map(|grant| (grant.node.clone(), (grant.desired.clone(), at))));
    }

    /// Grants that the view may not show yet.
    pub(crate) fn ahead(&self) -> &GrantsAhead {
        &self.ahead
    }

    /// Forgets the grants that the view does not show.
    pub(crate) fn rely_on_view(&mut self) {
        self.ahead.clear();
    }

    fn update(&mut self, plan: &IndexedPlan, record: &RolloutRecord, input: &DecisionInput<'_>) -> &Survey {
        self.ahead.retain(|_, (_, at)| *at > input.fleet.revision);
        let is_checked = self.is_checked && cfg!(debug_assertions);
        let new = || Survey::with_ahead(plan, record, input, &self.ahead);
        let mut survey = self.survey.take();
        if let Some(survey) = &mut survey {
            survey.update(plan, record, input, &self.ahead);
            let difference = is_checked.then(|| survey.difference(&new())).flatten();
            assert_eq!(difference, None, "the kept survey differs from a new one");
        }
        let survey = survey.unwrap_or_else(|| Box::new(new()));
        self.survey.insert(survey)
    }
}

/// Decides the next step of a rollout. The record is the one in the input's fleet.
pub fn step(kept: &mut KeptSurvey, plan: &IndexedPlan, record: &RolloutRecord, input: &DecisionInput<'_>) -> Step {
    let is_active = input.fleet.active_rollout_pointer().is_some_and(|(active, _)| active.id == record.id);
    let is_maintained = input.fleet.restoring().is_some() || input.fleet.destroying().is_some();
    if record.phase != RolloutPhase::Running || !is_active || is_maintained {
        return Step::default();
    }
    if record.at_once { follow_at_once(plan, record, input) } else { staged(kept, plan, record, input) }
}

fn complete_change(mut record: RolloutRecord, input: &DecisionInput<'_>) -> RolloutChange {
    record.phase = RolloutPhase::Completed;
    record.phase_since = input.now;
    record.steps.progress = input.now;
    record.steps.seen = input.fleet.revision;
    RolloutChange { record, grants: Vec::new(), completes: true }
}

fn staged(kept: &mut KeptSurvey, plan: &IndexedPlan, record: &RolloutRecord, input: &DecisionInput<'_>) -> Step {
    let survey = kept.update(plan, record, input);
    let mut step = Step { recheck: survey.recheck, ..Step::default() };
    if let Some(why) = failures::exceeded(plan, record, survey, input.fleet) {
        return handle_failure(plan, record, why, survey, input);
    }
    let mut next = record.clone();
    match advance_waves(plan, &mut next, survey, input.now) {
        WaveAdvance::InProgress => {}
        WaveAdvance::Held(Hold::Soak { until }) => step.recheck_at(until),
        WaveAdvance::Held(Hold::Gate { .. }) => step.checks = next.waves.len().checked_sub(1),
        WaveAdvance::Held(_) => {}
        WaveAdvance::Complete => {
            let next = with_progress(next, survey);
            let change = match failures::blocks_completion(record, survey, input.fleet) {
                Some(why) => pause_change(next, why, input),
                None => complete_change(
                    RolloutRecord { all_nodes_at_target: survey.is_complete(record, input.fleet), ..next },
                    input,
                ),
            };
            return Step { change: Some(change), ..Step::default() };
        }
        WaveAdvance::GateFailed(why) => return handle_failure(plan, record, why, survey, input),
        WaveAdvance::GateInconclusive(why) => {
            return match plan.plan().strategy.gate.inconclusive {
                OnInconclusive::Fail => handle_failure(plan, record, failed_gate(why), survey, input),
                OnInconclusive::Pause => Step {
                    change: Some(pause_change(with_progress(record.clone(), survey), why, input)),
                    ..Step::default()
                },
            };
        }
    }
    record_retries(&mut next, survey, input);
    let windows = &plan.plan().strategy.windows;
    let is_open = windows::is_open(windows, input.now);
    let mut budgets = BudgetTracker::new(plan, &next, survey, input);
    let grants = if is_open { budgets.choose(None) } else { Vec::new() };
    let is_idle = !is_open || (grants.is_empty() && budgets.only_held());
    let opens = if is_open { None } else { windows::next_opening(windows, input.now) };
    opens.into_iter().chain(survey.pauses().first_end()).for_each(|at| step.recheck_at(at));
    match check_progress(plan, &mut next, survey, is_idle, input.now) {
        ProgressDeadline::NotRunning => {}
        ProgressDeadline::Until(deadline) => step.recheck_at(deadline),
        ProgressDeadline::Expired(why) => {
            return Step {
                change: Some(pause_change(with_progress(record.clone(), survey), why, input)),
                ..Step::default()
            };
        }
    }
    if next == *record && grants.is_empty() {
        return step;
    }
    next.operator.retry.retain(|node| survey.awaits_retry(node) && !grants.iter().any(|grant| grant.node == *node));
    // A granted node holds a slot again.
    next.operator.released.retain(|node| !grants.iter().any(|grant| grant.node == *node));
    next.steps.grants = next.steps.grants.saturating_add(u64::try_from(grants.len()).unwrap_or(u64::MAX));
    let mut next = with_progress(next, survey);
    next.steps.seen = input.fleet.revision;
    step.change = Some(RolloutChange { record: next, grants, completes: false });
    step
}

/// Records the nodes that are to be granted again: after the pause there is no other sign why they have not reported.
fn record_retries(record: &mut RolloutRecord, survey: &Survey, input: &DecisionInput<'_>) {
    let nodes = &survey.paused_past_deadline;
    if record.operator.retry.len() + nodes.len() <= MAX_NAMED_NODES {
        record.operator.retry.extend(survey.names_of(nodes).cloned());
    } else {
        record.operator.retry_before = Some(FailureCutoff::up_to(input.fleet.epoch(), input.fleet.revision, input.now));
    }
}

/// Records the progress, but only together with another change.
fn with_progress(mut record: RolloutRecord, survey: &Survey) -> RolloutRecord {
    record.steps.healthy = survey.healthy;
    record.steps.progress = record.steps.progress.max(survey.last_healthy);
    record
}

/// The progress deadline.
enum ProgressDeadline {
    /// No window is open, or the rollout waits for an operator.
    NotRunning,
    Until(Timestamp),
    Expired(PauseReason),
}

/// Checks that the rollout makes progress while there is work to do.
fn check_progress(
    plan: &IndexedPlan,
    record: &mut RolloutRecord,
    survey: &Survey,
    is_idle: bool,
    now: Timestamp,
) -> ProgressDeadline {
    // A wave that soaks, is checked or waits for its promotion waits for no node.
    if record.waves.last().is_some_and(|wave| wave.settled.is_some() && wave.passed.is_none()) {
        return ProgressDeadline::NotRunning;
    }
    match (is_idle, record.steps.idle) {
        (true, since) => {
            record.steps.idle = since.or(Some(now));
            return ProgressDeadline::NotRunning;
        }
        (false, Some(_)) => {
            record.steps.idle = None;
            record.steps.progress = now;
        }
        (false, None) => {}
    }
    let since = record.steps.progress.max(survey.last_healthy);
    let patience = plan.plan().strategy.deadlines.progress.saturating_add(survey.call_allowance);
    let deadline = later(since, patience);
    if now < deadline {
        ProgressDeadline::Until(deadline)
    } else {
        ProgressDeadline::Expired(PauseReason::NoProgress { since })
    }
}

/// The reason for an inconclusive check that counts as failed.
fn failed_gate(why: PauseReason) -> PauseReason {
    match why {
        PauseReason::GateInconclusive { check, message } => {
            PauseReason::GateFailed { check, message: format!("inconclusive: {message}") }
        }
        other @ (PauseReason::Operator { .. }
        | PauseReason::Failures { .. }
        | PauseReason::GateFailed { .. }
        | PauseReason::NoProgress { .. }
        | PauseReason::NoRollbackTarget { .. }
        | PauseReason::Blocked { .. }) => other,
    }
}

/// A failure limit is exceeded: applies the strategy's `on_failure`.
fn handle_failure(
    plan: &IndexedPlan,
    record: &RolloutRecord,
    why: PauseReason,
    survey: &Survey,
    input: &DecisionInput<'_>,
) -> Step {
    let pause =
        |why| Step { change: Some(pause_change(with_progress(record.clone(), survey), why, input)), ..Step::default() };
    match plan.plan().strategy.on_failure {
        OnFailure::Pause => pause(why),
        // A failed rollback is not rolled back.
        OnFailure::Rollback if record.rolls_back.is_some() => pause(why),
        OnFailure::Rollback if stable_version(input.fleet, record.id).is_none() => {
            pause(PauseReason::NoRollbackTarget { why: Box::new(why) })
        }
        OnFailure::Rollback => Step { roll_back: Some(why), ..Step::default() },
    }
}

/// Pauses a rollout: as the decision of a step, or because the executor cannot continue.
pub fn pause_change(mut record: RolloutRecord, why: PauseReason, input: &DecisionInput<'_>) -> RolloutChange {
    record.phase = RolloutPhase::Paused { why };
    record.phase_since = input.now;
    record.steps.idle = None;
    record.steps.seen = input.fleet.revision;
    RolloutChange { record, grants: Vec::new(), completes: false }
}

/// Records the verdict of a gate. None if it is not awaited any more: the wave has changed, or the rollout was stopped.
pub fn gate_verdict_change(
    record: &RolloutRecord,
    wave: usize,
    verdict: GateVerdict,
    input: &DecisionInput<'_>,
) -> Option<RolloutChange> {
    let mut next = record.clone();
    let is_last = next.waves.len() == wave + 1;
    let state = next.waves.last_mut().filter(|state| state.settled.is_some() && state.passed.is_none())?;
    if record.phase != RolloutPhase::Running || !is_last || state.gate.is_some() {
        return None;
    }
    state.gate = Some(clip_verdict(verdict));
    next.steps.seen = input.fleet.revision;
    Some(RolloutChange { record: next, grants: Vec::new(), completes: false })
}

/// Programs may print a lot, and a record is small.
fn clip_verdict(verdict: GateVerdict) -> GateVerdict {
    let short = |text: String| clip(&text, MAX_TEXT);
    match verdict {
        GateVerdict::Passed { at } => GateVerdict::Passed { at },
        GateVerdict::Failed { at, check, message } => {
            GateVerdict::Failed { at, check: short(check), message: short(message) }
        }
        GateVerdict::Inconclusive { at, check, message } => {
            GateVerdict::Inconclusive { at, check: short(check), message: short(message) }
        }
    }
}

/// The new record and the grants that go with it, written together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutChange {
    pub record: RolloutRecord,
    pub grants: Vec<Grant>,
    /// The rollout ends, and nodes without a desired version of their own get the environment's version.
    pub completes: bool,
}

/// Permission for a node to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub node: NodeName,
    pub desired: DesiredRecord,
    /// Revision of the node's record in the design. A node that has left meanwhile is not granted.
    pub record_at: Revision,
}

impl RolloutChange {
    /// The transaction. It is refused if the record was rewritten since `at`, by an operator or another replica. The
    /// host adds the guard of its controller lock.
    pub fn txn(&self, fleet: &Fleet, at: Revision) -> Result<Txn, serde_json::Error> {
        let keys = Keys::new(&fleet.env);
        let mut txn = unchanged_guards(&keys, fleet, &self.record, at);
        if !self.grants.is_empty() {
            // A node that was cordoned meanwhile is not granted. One guard for all nodes: few have a policy.
            txn.guards.push(Guard::NoneNewer { prefix: keys.policies(), than: fleet.revision });
        }
        for Grant { node, record_at, .. } in &self.grants {
            txn.guards.push(Guard::Unchanged { key: keys.node(node), since: *record_at });
        }
        txn.ops.push(Op::put_json(keys.rollout(self.record.id), &self.record)?);
        let mut values = DesiredValues::default();
        for Grant { node, desired, .. } in &self.grants {
            txn.ops.push(Op::put(keys.desired(node), values.json(desired)?));
        }
        if let Some((active, _)) = fleet.active_rollout_pointer().filter(|_| self.completes) {
            let active = ActiveRollout { completed: true, ..active.clone() };
            txn.ops.push(Op::put_json(keys.active_rollout(), &active)?);
        }
        Ok(txn)
    }
}

impl RolloutChange {
    /// Values of the keys of [`Self::txn`] before it; None if they are not known.
    ///
    /// Those of a step that only grants follow from the fleet, and from the grants that are ahead of it. Whatever else writes these
    /// keys fails the guards: it rewrites the record of the rollout, or it removes the node with its record.
    pub(crate) fn values_before(
        &self,
        fleet: &Fleet,
        before: &RolloutRecord,
        ahead: &GrantsAhead,
    ) -> Result<Option<ValuesBefore>, serde_json::Error> {
        if self.grants.is_empty() || self.completes {
            return Ok(None);
        }
        let mut known = Vec::with_capacity(self.grants.len() + 1);
        known.push(Some(serde_json::to_vec(before)?));
        let mut values = DesiredValues::default();
        for Grant { node, .. } in &self.grants {
            let Some(current) = fleet.get(node).filter(|current| !current.desired_unreadable) else { return Ok(None) };
            let desired = ahead.get(node).or(current.desired.as_ref()).map(|(desired, _)| desired);
            known.push(desired.map(|desired| values.json(desired)).transpose()?);
        }
        Ok(Some(known))
    }
}

/// Encodes records of nodes, most of which are equal to the one before.
#[derive(Default)]
struct DesiredValues<'a>(Option<(&'a DesiredRecord, Vec<u8>)>);

impl<'a> DesiredValues<'a> {
    fn json(&mut self, desired: &'a DesiredRecord) -> Result<Vec<u8>, serde_json::Error> {
        match &self.0 {
            Some((known, json)) if *known == desired => Ok(json.clone()),
            Some(_) | None => {
                let json = serde_json::to_vec(desired)?;
                self.0 = Some((desired, json.clone()));
                Ok(json)
            }
        }
    }
}

/// Guards that nothing was decided about this rollout, or in place of it, since the input was read.
pub(crate) fn unchanged_guards(keys: &Keys, fleet: &Fleet, record: &RolloutRecord, at: Revision) -> Txn {
    let active = fleet.active_rollout_pointer().map(|(_, at)| at);
    Txn::new()
        .guard(Guard::Unchanged { key: keys.rollout(record.id), since: at })
        .guard(Guard::observed(keys.active_rollout(), active))
        .guard(Guard::Absent { key: keys.destroying() })
        .guard(Guard::Absent { key: keys.restoring() })
}

#[cfg(test)]
mod tests;
