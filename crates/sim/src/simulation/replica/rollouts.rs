//! Reconciles rollouts on the server that holds the controller: [`muster_rollout::executor`] decides. This schedules
//! it, fences its writes, and runs the checks of gates.

use std::time::Duration;

use jiff::SignedDuration;
use muster_core::names::NodeName;
use muster_core::node::liveness::Link;
use muster_core::replica::ControllerName;
use muster_core::rollout::progress::Progress;
use muster_core::rollout::record::GateVerdict;
use muster_core::txn::Revision;
use muster_rollout::decision::{DecisionInput, MIN_OPS};
use muster_rollout::executor::{
    CommitResult, DEBOUNCE, Executor, GateRequest, IoResult, NextAction, RETRY_DELAY, ReconcileResult,
};
use muster_rollout::progress::progress;

use super::ReplicaTask;
use super::calls::{Answer, Call, Request};
use super::host::{IoClient, commit_result};
use super::membership::FencedOutcome;
use crate::simulation::coverage::observe;
use crate::simulation::event::{Event, ReplicaEvent, ReplicaNumber};
use crate::simulation::world::World;

/// The grace time of a disconnection, as in the server.
pub(crate) const TIMEOUT: SignedDuration = SignedDuration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct Rollouts {
    executor: Executor,
    reconciliations: u64,
    /// The running reconciliation, with the revision of the controller lock for its writes.
    reconcile: Option<(u64, Revision)>,
    /// Something has changed since it started.
    again: bool,
    /// The gate that is being checked.
    gate: Option<GateRequest>,
}

impl Default for Rollouts {
    /// The executor checks itself: nothing changes while it decides.
    fn default() -> Self {
        let (executor, reconciliations) = (Executor::checked(), 0);
        Self { executor, reconciliations, reconcile: None, again: false, gate: None }
    }
}

impl World {
    /// Calls a function with a server's current decision input.
    pub(crate) fn with_input<T>(
        &mut self,
        replica: ReplicaNumber,
        reconcile: impl FnOnce(&DecisionInput<'_>, &Self) -> T,
    ) -> Option<T> {
        let now = self.clock_of(replica);
        let links = self.replicas[replica].links(now);
        let link = |name: &NodeName| links.get(name).copied().unwrap_or(Link::Silent { since: now });
        let fleet = self.replicas[replica].view.take()?;
        let (ages, since) = (&self.replicas[replica].watch.ages, self.now);
        let observed_for = |revision| ages.age_of(revision, since);
        let changed = &self.replicas[replica].agents.links;
        let input = DecisionInput {
            fleet: &fleet,
            link: &link,
            link_changes: &|since| changed.changes(since),
            disconnect_grace: TIMEOUT,
            max_ops: MIN_OPS,
            now,
            observed_for: &observed_for,
        };
        let seen = reconcile(&input, self);
        self.replicas[replica].view = Some(fleet);
        Some(seen)
    }

    /// The server that holds the rollout controller and may act, if there is one now.
    pub(crate) fn acting(&self) -> Option<ReplicaNumber> {
        let acts = |number: &ReplicaNumber| {
            let server = &self.replicas[*number];
            server.up && server.held(ControllerName::Rollout, self.now).is_some()
        };
        (0..self.replicas.len()).find(acts)
    }

    /// The progress of the active rollout, as the acting server sees it. None while its view is behind, or it is about
    /// to write.
    pub(crate) fn progress(&mut self) -> Option<Progress> {
        let acting = self.acting()?;
        let server = &self.replicas[acting];
        let is_up_to_date = server.view.as_ref().map(|fleet| fleet.revision) == Some(self.depot.history.head());
        let is_about_to =
            server.rollouts.reconcile.is_some() || server.chores.is_due(ReplicaTask::Rollout, self.now + DEBOUNCE);
        if !is_up_to_date || is_about_to {
            return None;
        }
        let reconcile = |input: &DecisionInput<'_>, world: &Self| {
            let (record, _) = input.fleet.active_rollout_record()?;
            Some(progress(world.blobs.plans.get(&record.plan)?, record, input))
        };
        self.with_input(acting, reconcile).flatten()
    }

    /// Schedules a reconciliation. Changes of the same moment are handled together.
    pub(super) fn reconcile_soon(&mut self, replica: ReplicaNumber) {
        self.schedule_task(replica, ReplicaTask::Rollout, self.now + DEBOUNCE);
    }

    pub(super) fn start_reconcile(&mut self, replica: ReplicaNumber) {
        let held = self.replicas[replica].held(ControllerName::Rollout, self.now).map(|held| held.revision);
        let rollouts = &mut self.replicas[replica].rollouts;
        let Some(held) = held else {
            *rollouts = Rollouts { reconciliations: rollouts.reconciliations, ..Rollouts::default() };
            return;
        };
        if rollouts.reconcile.is_some() {
            rollouts.again = true;
            return;
        }
        rollouts.reconciliations += 1;
        let reconcile = rollouts.reconciliations;
        rollouts.reconcile = Some((reconcile, held));
        self.continue_reconcile(replica, reconcile, IoResult::Start);
    }

    /// Continues a reconciliation, unless it was dropped.
    pub(super) fn continue_reconcile(&mut self, replica: ReplicaNumber, reconcile: u64, io: IoResult) {
        let rollouts = &mut self.replicas[replica].rollouts;
        let Some((_, held)) = rollouts.reconcile.filter(|(number, _)| *number == reconcile) else { return };
        let mut executor = std::mem::take(&mut rollouts.executor);
        let next = self.with_input(replica, |input, world| {
            let mut next = executor.next(input, io);
            while let NextAction::Io(io_request) = &next
                && let Some(io) = world.available_io(replica, input.fleet.revision, io_request)
            {
                next = executor.next(input, io);
            }
            next
        });
        self.replicas[replica].rollouts.executor = executor;
        match next {
            None => self.reconcile_ended(replica, ReconcileResult::Idle),
            Some(NextAction::Done(looked)) => self.reconcile_ended(replica, looked),
            Some(NextAction::Io(io_request)) => self.request_io(replica, IoClient::Reconcile(reconcile), io_request),
            Some(NextAction::Commit(write)) => match self.fenced(replica, ControllerName::Rollout, write.txn) {
                Some((lock_revision, txn)) if lock_revision == held => {
                    self.call(replica, Call::Step { held, reconcile, before: write.before }, Request::Commit(txn));
                }
                // It has lost the controller lock, or has acquired it again.
                Some(_) | None => self.step_answered(replica, reconcile, CommitResult::LockLost),
            },
        }
    }

    pub(super) fn reconcile_failed(&mut self, replica: ReplicaNumber, reconcile: u64) {
        if self.replicas[replica].rollouts.reconcile.is_some_and(|(number, _)| number == reconcile) {
            self.reconcile_ended(replica, ReconcileResult::Failed);
        }
    }

    /// A reconciliation has ended.
    fn reconcile_ended(&mut self, replica: ReplicaNumber, looked: ReconcileResult) {
        let clock = self.clock_of(replica);
        self.record_arms([observe::of_reconcile(&looked)]);
        self.replicas[replica].rollouts.reconcile = None;
        self.update_gate(replica);
        let wait = match looked {
            ReconcileResult::Idle | ReconcileResult::WaitUntil(None) | ReconcileResult::Stuck { .. } => None,
            ReconcileResult::WaitUntil(Some(at)) => {
                Some(Duration::try_from(at.duration_since(clock)).unwrap_or_default())
            }
            ReconcileResult::Failed => Some(RETRY_DELAY),
            ReconcileResult::More => Some(Duration::ZERO),
        };
        if let Some(wait) = wait {
            self.schedule_task(replica, ReplicaTask::Rollout, self.now + wait + DEBOUNCE);
        }
        if std::mem::take(&mut self.replicas[replica].rollouts.again) {
            self.reconcile_soon(replica);
        }
    }

    pub(super) fn stepped(&mut self, replica: ReplicaNumber, held: Revision, reconcile: u64, answer: &Answer) {
        let result = match self.outcome(replica, ControllerName::Rollout, held, answer) {
            FencedOutcome::Deposed => CommitResult::LockLost,
            FencedOutcome::Committed | FencedOutcome::Refused | FencedOutcome::Failed => {
                commit_result(answer).unwrap_or(CommitResult::Unknown)
            }
        };
        self.step_answered(replica, reconcile, result);
    }

    fn step_answered(&mut self, replica: ReplicaNumber, reconcile: u64, result: CommitResult) {
        self.record_arms([observe::of_commit(&result)]);
        self.continue_reconcile(replica, reconcile, IoResult::Commit(result));
    }

    /// Starts or stops the checks of a gate, as the executor requests.
    fn update_gate(&mut self, replica: ReplicaNumber) {
        let rollouts = &mut self.replicas[replica].rollouts;
        let request = rollouts.executor.gate_request().cloned();
        if rollouts.gate == request {
            return;
        }
        rollouts.gate.clone_from(&request);
        let Some(request) = request else { return };
        let life = self.replicas[replica].life;
        let takes = self.random_between(200, 5_000);
        let what = ReplicaEvent::GateChecked(Box::new(request));
        self.queue.schedule(self.now + takes, Event::Replica { replica, life, what });
    }

    pub(super) fn gate_checked(&mut self, replica: ReplicaNumber, request: GateRequest) {
        if self.replicas[replica].rollouts.gate.as_ref() != Some(&request) {
            return;
        }
        let at = self.clock_of(replica);
        let verdict = self.gate_verdict(request.rollout, request.wave_index, at);
        self.log_replica(
            replica,
            format_args!("the gate of wave {}: {}", request.wave_index + 1, verdict_text(&verdict)),
        );
        let rollouts = &mut self.replicas[replica].rollouts;
        rollouts.gate = None;
        rollouts.executor.record_verdict(request, verdict);
        self.reconcile_soon(replica);
    }
}

fn verdict_text(verdict: &GateVerdict) -> &'static str {
    match verdict {
        GateVerdict::Passed { .. } => "passed",
        GateVerdict::Failed { .. } => "failed",
        GateVerdict::Inconclusive { .. } => "inconclusive",
    }
}
