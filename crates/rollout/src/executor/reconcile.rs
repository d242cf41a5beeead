//! Reconciles the rollout of one environment: [`step`] decides, and this orders the IO and the writes that follow.
//!
//! The only state that is kept between two reconciliations is the verdict of a gate, and the survey of the last step, which
//! saves time and decides nothing. A replica that takes over reads the same keys and decides the same. Whether a write was committed, refused or has an unknown outcome, the next reconciliation
//! reads the result from the store.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::Version;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{GateVerdict, PauseReason, RolloutPhase, RolloutRecord};
use muster_core::rollout::strategy::GateCheck;
use muster_core::txn::{Guard, Op, Revision, Txn};

use super::chain;
use super::io::{CommitResult, ControllerWrite, IoRequest, IoResult, NextAction, WriteKind};
use super::rollback::{RollbackPlanner, RollbackStep};
use crate::decision::DecisionInput;
use crate::health::later;
use crate::progress::final_progress;
use crate::record_limit;
use crate::start::{StartOptions, roll_back};
use crate::step::{IndexedPlan, KeptSurvey, RolloutChange, gate_verdict_change, pause_change, step};

/// Steps in one reconciliation, before other environments have their turn. A wave of 5,000 nodes that may all move takes 44.
const MAX_STEPS: usize = 100;
/// The delay before another try to store an outcome that did not fit on the disk.
const OUTCOME_RETRY: SignedDuration = SignedDuration::from_mins(1);
/// The author of automatic rollbacks.
const MUSTER: &str = "muster";

/// The result of one reconciliation of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// No rollout is running.
    Idle,
    /// Nothing to do before this time, unless something changes.
    WaitUntil(Option<Timestamp>),
    /// A write failed or has an unknown outcome.
    Failed,
    /// The record cannot be written until an operator intervenes.
    Stuck { problem: String },
    /// There is more to do at once.
    More,
}

/// Reconciles the rollout of one environment.
#[derive(Clone, Debug, Default)]
pub struct Executor {
    gate: GateState,
    survey: KeptSurvey,
    steps: usize,
    freshness: Freshness,
    ahead: Option<CommittedStep>,
    outcome: OutcomeState,
    waits_for: ReconcileIo,
}

/// True if the outcome of an ended rollout is stored, within one reconciliation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OutcomeState {
    #[default]
    ToBeSaved,
    /// It can never be stored. Nothing waits for it.
    GivenUp,
    /// It cannot be stored now.
    NotSaved,
    /// Its record could not be written.
    NotWritten,
}

/// The last committed step, while the view does not show it yet. The next grants are decided on it, since the commit of the
/// record at this revision proves that no other write came between.
#[derive(Clone, Debug)]
struct CommittedStep {
    record: Box<RolloutRecord>,
    at: Revision,
}

#[derive(Clone, Debug, Default)]
enum ReconcileIo {
    #[default]
    Nothing,
    PlanOfEnded {
        digest: String,
    },
    SaveOutcome {
        record: Box<RolloutRecord>,
        at: Revision,
    },
    CommitOutcome,
    /// The plan of the running rollout.
    Plan {
        basis: DecisionBasis,
        digest: String,
    },
    StoreRevision,
    View,
    Commit {
        basis: DecisionBasis,
        /// Pause the rollout if the store never accepts the write.
        pause_if_invalid: bool,
        /// A step that only grants nodes.
        granting: Option<Arc<RolloutChange>>,
    },
    Rollback {
        basis: DecisionBasis,
        why: PauseReason,
        planner: RollbackPlanner,
    },
}

type Action = NextAction<Box<ControllerWrite>, ReconcileResult>;

impl Executor {
    /// Continues with the result of the last action. [`IoResult::Start`] begins a new reconciliation.
    pub fn next(&mut self, input: &DecisionInput<'_>, io: IoResult) -> Action {
        let action = match (std::mem::take(&mut self.waits_for), io) {
            (_, IoResult::Start) => {
                let (gate, survey) = (std::mem::take(&mut self.gate), std::mem::take(&mut self.survey));
                *self = Self { gate, survey, ..Self::default() };
                self.survey.rely_on_view();
                self.step(input)
            }
            (ReconcileIo::PlanOfEnded { digest }, IoResult::Plan(plan)) => {
                self.save_outcome(input, &digest, plan.ok().as_deref())
            }
            (ReconcileIo::SaveOutcome { record, at }, IoResult::OutcomeSaved(name)) => {
                self.record_outcome(input, *record, at, name)
            }
            (ReconcileIo::CommitOutcome, IoResult::Commit(result)) => self.outcome_committed(input, result),
            (ReconcileIo::Plan { basis, digest }, IoResult::Plan(Ok(plan))) => {
                self.decide(input, basis, &digest, &plan)
            }
            (ReconcileIo::Plan { basis, .. }, IoResult::Plan(Err(problem))) => {
                self.plan_unreadable(input, basis, &problem)
            }
            (ReconcileIo::StoreRevision, IoResult::StoreRevision(revision)) => self.await_view(revision),
            (ReconcileIo::View, IoResult::ViewReached) => self.step(input),
            (ReconcileIo::Commit { basis, pause_if_invalid, granting }, IoResult::Commit(result)) => {
                if let (CommitResult::Committed(at), Some(change)) = (&result, granting) {
                    return self.granted(input, &change, *at);
                }
                self.committed(input, basis, pause_if_invalid, result)
            }
            (ReconcileIo::Rollback { basis, why, planner }, io) => self.roll_back(input, basis, why, planner, io),
            // The result belongs to a reconciliation that was dropped.
            (_, _) => NextAction::Done(ReconcileResult::Failed),
        };
        if let NextAction::Done(ReconcileResult::Idle) = action {
            self.gate = GateState::default();
            self.survey.clear();
        }
        action
    }

    /// An executor that checks its survey in each step; see [`KeptSurvey::checked`].
    pub fn checked() -> Self {
        Self { survey: KeptSurvey::checked(), ..Self::default() }
    }

    /// The gate whose checks the host should be running now.
    pub fn gate_request(&self) -> Option<&GateRequest> {
        self.gate.request()
    }

    /// Records the verdict of a gate. False if the request is no longer current.
    pub fn record_verdict(&mut self, request: GateRequest, verdict: GateVerdict) -> bool {
        self.gate.record_verdict(request, verdict)
    }

    /// Stores the outcome of an ended rollout first, then moves the running one.
    fn step(&mut self, input: &DecisionInput<'_>) -> Action {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return NextAction::Done(ReconcileResult::More);
        }
        if let Some((record, _)) = unsaved_outcome(input.fleet).filter(|_| self.outcome == OutcomeState::ToBeSaved) {
            self.waits_for = ReconcileIo::PlanOfEnded { digest: record.plan.clone() };
            return NextAction::Io(IoRequest::LoadPlan(record.plan.clone()));
        }
        match self.running(input.fleet) {
            Some((basis, record)) => {
                let digest = record.plan.clone();
                self.waits_for = ReconcileIo::Plan { basis, digest: digest.clone() };
                NextAction::Io(IoRequest::LoadPlan(digest))
            }
            None => NextAction::Done(match self.outcome {
                OutcomeState::ToBeSaved | OutcomeState::GivenUp => ReconcileResult::Idle,
                OutcomeState::NotSaved => ReconcileResult::WaitUntil(input.now.checked_add(OUTCOME_RETRY).ok()),
                OutcomeState::NotWritten => ReconcileResult::Failed,
            }),
        }
    }

    /// The running rollout, by the last committed step or by the view, whichever is newer.
    fn running<'f>(&'f self, fleet: &'f Fleet) -> Option<(DecisionBasis, &'f RolloutRecord)> {
        let (basis, record) = DecisionBasis::running(fleet)?;
        match self.ahead.as_ref().filter(|ahead| fleet.revision < ahead.at && ahead.record.id == basis.id) {
            Some(CommittedStep { record, at }) => Some((DecisionBasis { at: *at, ..basis }, record)),
            None => Some((basis, record)),
        }
    }

    /// Decides the next grants on a step that was just committed, without waiting for the view.
    fn granted(&mut self, input: &DecisionInput<'_>, change: &RolloutChange, at: Revision) -> Action {
        self.freshness = self.freshness.after_write();
        self.survey.granted(&change.grants, at);
        self.ahead = Some(CommittedStep { record: Box::new(change.record.clone()), at });
        self.step(input)
    }

    fn await_view(&mut self, revision: Revision) -> Action {
        self.waits_for = ReconcileIo::View;
        NextAction::Io(IoRequest::AwaitView(revision))
    }

    fn save_outcome(&mut self, input: &DecisionInput<'_>, digest: &str, plan: Option<&IndexedPlan>) -> Action {
        let ended = unsaved_outcome(input.fleet).filter(|(record, _)| record.plan == digest);
        let (Some(plan), Some((record, at))) = (plan, ended) else {
            // Without its plan the outcome is unknown. With the plan, another rollout has ended since.
            self.outcome = if plan.is_none() { OutcomeState::GivenUp } else { self.outcome };
            return self.step(input);
        };
        let progress = Box::new(final_progress(plan, record, input));
        self.waits_for = ReconcileIo::SaveOutcome { record: Box::new(record.clone()), at };
        NextAction::Io(IoRequest::SaveOutcome(progress))
    }

    fn record_outcome(
        &mut self,
        input: &DecisionInput<'_>,
        record: RolloutRecord,
        at: Revision,
        name: Option<String>,
    ) -> Action {
        let rollout = record.id;
        match name.map(|name| outcome_txn(input.fleet, record, at, name)) {
            Some(Ok(txn)) => {
                self.waits_for = ReconcileIo::CommitOutcome;
                let kind = WriteKind::Outcome { rollout };
                return NextAction::Commit(Box::new(ControllerWrite { txn, before: None, kind }));
            }
            Some(Err(_)) => self.outcome = OutcomeState::GivenUp,
            None => self.outcome = OutcomeState::NotSaved,
        }
        self.step(input)
    }

    fn outcome_committed(&mut self, input: &DecisionInput<'_>, result: CommitResult) -> Action {
        match result {
            CommitResult::Committed(revision) | CommitResult::Conflict(revision) => return self.await_view(revision),
            CommitResult::LockLost => return NextAction::Done(ReconcileResult::Idle),
            CommitResult::Invalid(_) => self.outcome = OutcomeState::GivenUp,
            CommitResult::Unknown => self.outcome = OutcomeState::NotWritten,
        }
        self.step(input)
    }

    fn decide(&mut self, input: &DecisionInput<'_>, basis: DecisionBasis, digest: &str, plan: &IndexedPlan) -> Action {
        // Another rollout may be active since the plan was read, or this one may have been rewritten.
        let is_current = |(now, record): &(DecisionBasis, &RolloutRecord)| now.id == basis.id && record.plan == digest;
        let running = self.running(input.fleet).filter(is_current);
        let Some((basis, record)) = running.map(|(basis, record)| (basis, record.clone())) else {
            return self.step(input);
        };
        let record = &record;
        let ahead = self.ahead.as_ref().map(|ahead| ahead.at).filter(|at| input.fleet.revision < *at);
        let decided = step(&mut self.survey, plan, record, input);
        if let Some(at) = ahead {
            // All but further grants is decided on the view.
            return match decided.change.filter(|change| only_grants(record, change)) {
                Some(change) if self.freshness.holds(input.now) => self.write(input, basis, record, change),
                Some(_) | None => self.await_view(at),
            };
        }
        let request = decided.checks.and_then(|wave| GateRequest::new(plan, record, wave));
        let verdict = self.gate.update(request);
        if let Some(why) = decided.roll_back {
            if !self.freshness.holds(input.now) {
                return self.refresh_view(input);
            }
            return self.roll_back(input, basis, why, RollbackPlanner::new(basis.id), IoResult::Start);
        }
        let verdict = verdict.and_then(|(wave, verdict)| gate_verdict_change(record, wave, verdict, input));
        match verdict.or(decided.change) {
            None => NextAction::Done(ReconcileResult::WaitUntil(decided.recheck)),
            Some(change) if !self.freshness.holds(input.now) && needs_fresh_view(record, &change) => {
                self.refresh_view(input)
            }
            Some(change) => self.write(input, basis, record, change),
        }
    }

    /// Brings the view up to date, and decides again on it.
    fn refresh_view(&mut self, input: &DecisionInput<'_>) -> Action {
        self.freshness = self.freshness.check(input.now);
        self.waits_for = ReconcileIo::StoreRevision;
        NextAction::Io(IoRequest::StoreRevision)
    }

    /// Pauses a rollout whose plan cannot be read: an operator has to restore the blob.
    fn plan_unreadable(&mut self, input: &DecisionInput<'_>, basis: DecisionBasis, problem: &str) -> Action {
        let hint = "restore the blob and run `muster rollout resume`, or start another rollout with --supersede";
        self.pause(input, basis, format!("{problem}; {hint}"))
    }

    fn write(
        &mut self,
        input: &DecisionInput<'_>,
        basis: DecisionBasis,
        before: &RolloutRecord,
        mut change: RolloutChange,
    ) -> Action {
        record_limit::fit(&mut change.record);
        let write = change.txn(input.fleet, basis.at).and_then(|txn| {
            let before = change.values_before(input.fleet, before, self.survey.ahead())?;
            Ok((txn, before))
        });
        match write {
            Ok((txn, values)) => {
                let pause_if_invalid = matches!(change.record.phase, RolloutPhase::Running);
                let change = Arc::new(change);
                let granting = only_grants(before, &change).then(|| change.clone());
                self.waits_for = ReconcileIo::Commit { basis, pause_if_invalid, granting };
                let before = Box::new(before.clone());
                let kind = WriteKind::Step { before, change };
                NextAction::Commit(Box::new(ControllerWrite { txn, before: values, kind }))
            }
            Err(error) => NextAction::Done(ReconcileResult::Stuck { problem: error.to_string() }),
        }
    }

    fn committed(
        &mut self,
        input: &DecisionInput<'_>,
        basis: DecisionBasis,
        pause_if_invalid: bool,
        result: CommitResult,
    ) -> Action {
        self.freshness = self.freshness.after_write();
        // Another write came between, or the outcome is unknown.
        let was_ahead = self.ahead.take().is_some_and(|ahead| ahead.at == basis.at);
        self.survey.rely_on_view();
        match result {
            CommitResult::Committed(revision) | CommitResult::Conflict(revision) => self.await_view(revision),
            CommitResult::LockLost => NextAction::Done(ReconcileResult::Idle),
            // Decided again on the view, where the rollout can be paused.
            CommitResult::Invalid(_) if was_ahead => self.await_view(basis.at),
            CommitResult::Invalid(error) if pause_if_invalid => self.pause(input, basis, record_limit::problem(&error)),
            // The pause cannot be written either, and was made as small as possible.
            CommitResult::Invalid(_) => NextAction::Done(ReconcileResult::Failed),
            // The next view shows whether it was committed.
            CommitResult::Unknown => NextAction::Done(ReconcileResult::Failed),
        }
    }

    /// Pauses a rollout that cannot continue, unless its record was rewritten meanwhile.
    fn pause(&mut self, input: &DecisionInput<'_>, basis: DecisionBasis, problem: String) -> Action {
        let Some(record) = basis.unchanged_in(input.fleet) else { return self.step(input) };
        let change = pause_change(record.clone(), PauseReason::Blocked { problem }, input);
        self.write(input, basis, record, change)
    }

    /// Plans the rollback, then commits the transaction that ends the failed rollout and starts the rollback. The record
    /// must not have been rewritten meanwhile.
    fn roll_back(
        &mut self,
        input: &DecisionInput<'_>,
        basis: DecisionBasis,
        why: PauseReason,
        mut planner: RollbackPlanner,
        io: IoResult,
    ) -> Action {
        let (plan, digest) = match planner.next(input, io) {
            Ok(RollbackStep::Io(request)) => {
                self.waits_for = ReconcileIo::Rollback { basis, why, planner };
                return NextAction::Io(request);
            }
            Ok(RollbackStep::Ready { plan, digest }) => (plan, digest),
            Err(error) => {
                let problem = format!("{why}; and the rollback cannot be planned: {}", chain(&error));
                return self.pause(input, basis, problem);
            }
        };
        let Some(record) = basis.unchanged_in(input.fleet) else { return self.step(input) };
        let options =
            StartOptions { request: format!("back from {}", basis.id), by: MUSTER.to_owned(), supersede: false };
        match roll_back(input, &plan, &digest, options, (record, basis.at), &why) {
            Ok(start) => match start.txn {
                Some(txn) => {
                    self.waits_for = ReconcileIo::Commit { basis, pause_if_invalid: false, granting: None };
                    let kind = WriteKind::Rollback { from: basis.id, rollout: start.id, to: plan.to.clone(), why };
                    NextAction::Commit(Box::new(ControllerWrite { txn, before: None, kind }))
                }
                // It has started already.
                None => self.step(input),
            },
            Err(error) => {
                self.pause(input, basis, format!("{why}; and the rollback cannot be started: {}", chain(&error)))
            }
        }
    }
}

/// The running rollout and the revision of its record that a decision was made on. After each IO request it is checked
/// again: an operator may have paused or ended the rollout meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecisionBasis {
    pub(super) id: RolloutId,
    pub(super) at: Revision,
}

impl DecisionBasis {
    /// The rollout that is running now.
    pub(super) fn running(fleet: &Fleet) -> Option<(Self, &RolloutRecord)> {
        let (record, at) = fleet.active_rollout_record().filter(|(record, _)| record.phase == RolloutPhase::Running)?;
        Some((Self { id: record.id, at }, record))
    }

    /// The record, unless it was rewritten since the decision.
    pub(super) fn unchanged_in(self, fleet: &Fleet) -> Option<&RolloutRecord> {
        Self::running(fleet).filter(|(now, _)| *now == self).map(|(_, record)| record)
    }
}

/// True if a change grants a node, ends a wave, or completes the rollout. These must not be decided on a stale view, since
/// reports that other replicas took in may contradict them. A change that only records progress or pauses may.
pub(super) fn needs_fresh_view(before: &RolloutRecord, change: &RolloutChange) -> bool {
    let RolloutChange { record, grants, completes } = change;
    let waves = |record: &RolloutRecord| {
        let waves = record.waves.iter();
        waves.map(|wave| (wave.gate.is_some(), wave.passed.is_some())).collect::<Vec<_>>()
    };
    !grants.is_empty() || *completes || waves(record) != waves(before)
}

/// True if a change grants nodes of the wave in progress and does nothing else: no wave begins or ends.
fn only_grants(before: &RolloutRecord, change: &RolloutChange) -> bool {
    let RolloutChange { record, grants, completes } = change;
    !grants.is_empty() && !completes && record.phase == before.phase && record.waves == before.waves
}

/// The ended rollout whose outcome is not stored yet. The outcome of a completed rollout is stored at once. Of any other, it
/// is stored when the next rollout has started and granted nothing: until then its nodes may still be moving.
pub fn unsaved_outcome(fleet: &Fleet) -> Option<(&RolloutRecord, Revision)> {
    let (active, at) = fleet.active_rollout_record()?;
    let (record, at) = match active.phase {
        RolloutPhase::Completed => (active, at),
        RolloutPhase::Running
        | RolloutPhase::Paused { .. }
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::RolledBack { .. }
        | RolloutPhase::Superseded { .. } => {
            let previous = fleet.rollouts().range(..active.id).next_back().filter(|_| active.steps.grants == 0);
            previous.map(|(_, (record, at))| (record, *at))?
        }
    };
    (!record.phase.is_open() && record.outcome.is_none()).then_some((record, at))
}

/// Writes the name of the stored outcome into the record.
fn outcome_txn(fleet: &Fleet, mut record: RolloutRecord, at: Revision, name: String) -> serde_json::Result<Txn> {
    let keys = Keys::new(&fleet.env);
    record.outcome = Some(name);
    Ok(Txn::new()
        .guard(Guard::Unchanged { key: keys.rollout(record.id), since: at })
        .guard(Guard::Absent { key: keys.destroying() })
        .guard(Guard::Absent { key: keys.restoring() })
        .op(Op::put_json(keys.rollout(record.id), &record)?))
}

/// The checks of one wave that are to be run. If the wave's nodes change in between, it is another request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateRequest {
    pub rollout: RolloutId,
    /// Index of the wave in the plan, from 0.
    pub wave_index: usize,
    /// The time when all nodes of the wave were done.
    pub settled: Timestamp,
    pub from: Option<Version>,
    pub to: Version,
    /// Stage and wave as shown to operators.
    pub stage: u32,
    pub wave: u32,
    pub checks: Vec<GateCheck>,
}

impl GateRequest {
    fn new(plan: &IndexedPlan, record: &RolloutRecord, wave_index: usize) -> Option<Self> {
        let planned = plan.plan().waves.get(wave_index)?;
        Some(Self {
            rollout: record.id,
            wave_index,
            settled: record.waves.get(wave_index)?.settled?,
            from: record.from.clone(),
            to: record.to.clone(),
            stage: planned.stage,
            wave: planned.wave,
            checks: plan.plan().strategy.gate.checks.clone(),
        })
    }
}

#[derive(Clone, Debug, Default)]
enum GateState {
    #[default]
    Idle,
    Running(GateRequest),
    /// Kept until the verdict is in the store.
    Answered(GateRequest, GateVerdict),
}

impl GateState {
    /// Makes this the current request. Returns its verdict once there is one.
    fn update(&mut self, wanted: Option<GateRequest>) -> Option<(usize, GateVerdict)> {
        match (&*self, wanted) {
            (GateState::Answered(of, verdict), Some(wanted)) if *of == wanted => Some((of.wave_index, verdict.clone())),
            (GateState::Running(of), Some(wanted)) if *of == wanted => None,
            (_, Some(wanted)) => {
                *self = GateState::Running(wanted);
                None
            }
            (_, None) => {
                *self = GateState::Idle;
                None
            }
        }
    }

    fn request(&self) -> Option<&GateRequest> {
        match self {
            GateState::Running(request) => Some(request),
            GateState::Idle | GateState::Answered(..) => None,
        }
    }

    fn record_verdict(&mut self, request: GateRequest, verdict: GateVerdict) -> bool {
        let is_current = self.request() == Some(&request);
        if is_current {
            *self = GateState::Answered(request, verdict);
        }
        is_current
    }
}

/// A view counts as fresh for this long after it has reached the store's newest revision.
const FRESH_FOR: SignedDuration = SignedDuration::from_millis(500);
/// Refreshes for one step where the store or its watch is slower than that. After them the step is taken anyway: a rollout
/// on a slow store must progress, and each write compares the state that it was decided on.
const MAX_REFRESHES: u8 = 3;

/// True if the view shows what the store held a moment ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Freshness {
    #[default]
    Unknown,
    /// The store's revision was read for this step.
    Checked { at: Timestamp, times: u8 },
    /// It was read for an earlier step. Each step waits until the view shows the previous one, which keeps the view fresh
    /// for the next step unless that wait takes long.
    Carried { since: Timestamp },
}

impl Freshness {
    fn holds(self, now: Timestamp) -> bool {
        let is_recent = |at: Timestamp| at <= now && now <= later(at, FRESH_FOR);
        match self {
            Self::Unknown => false,
            Self::Checked { at, times } => is_recent(at) || times >= MAX_REFRESHES,
            Self::Carried { since } => is_recent(since),
        }
    }

    fn check(self, now: Timestamp) -> Self {
        let before = match self {
            Self::Checked { times, .. } => times,
            Self::Unknown | Self::Carried { .. } => 0,
        };
        Self::Checked { at: now, times: before + 1 }
    }

    fn after_write(self) -> Self {
        match self {
            Self::Checked { at, .. } => Self::Carried { since: at },
            Self::Unknown | Self::Carried { .. } => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_store_is_refreshed_a_few_times_and_blocks_nothing() {
        let (mut now, mut freshness) = (Timestamp::UNIX_EPOCH, Freshness::default());
        let mut refreshes = 0;
        while !freshness.holds(now) {
            freshness = freshness.check(now);
            now = later(now, SignedDuration::from_secs(2));
            refreshes += 1;
        }
        assert_eq!(refreshes, MAX_REFRESHES);
        let freshness = freshness.after_write();
        assert!(!freshness.holds(now), "the next step refreshes again");
        assert!(freshness.check(now).holds(now));
    }
}
