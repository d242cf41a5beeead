//! A host in memory: it performs every IO request at once, and a test can make changes in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::report::reason::RunReason;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};
use muster_core::rollout::strategy::{Amount, FailureLimits, OnFailure, Strategy};
use muster_core::txn::Txn;

use crate::command::{RolloutCommand, apply_command};
use crate::executor::{
    CommitResult, ControllerWrite, Executor, IoRequest, IoResult, NextAction, OperatorRequest, ReconcileResult,
    RequestExecutor, RolloutConfig, WriteKind,
};
use crate::plan::plan;
use crate::start::{StartOptions, start};
use crate::step::IndexedPlan;
use crate::testing::{FakeFleet, RunEnd, request};

/// Holds plans and outcomes.
#[derive(Clone, Debug, Default)]
pub(super) struct FakeHost {
    pub(super) blobs: BTreeMap<String, Arc<IndexedPlan>>,
    pub(super) outcomes: usize,
    /// There is no room for another outcome.
    pub(super) is_full: bool,
    pub(super) config: RolloutConfig,
    /// The IO requests, in order.
    pub(super) requests: Vec<&'static str>,
}

impl FakeHost {
    pub(super) fn perform(&mut self, world: &FakeFleet, io: IoRequest) -> IoResult {
        self.requests.push(request_name(&io));
        match io {
            IoRequest::StoreRevision => IoResult::StoreRevision(world.fleet.revision),
            IoRequest::AwaitView(revision) => {
                assert!(world.fleet.revision >= revision, "a wait for a revision that does not exist");
                IoResult::ViewReached
            }
            IoRequest::LoadPlan(name) => {
                IoResult::Plan(self.blobs.get(&name).cloned().ok_or_else(|| format!("{name} is missing")))
            }
            IoRequest::LoadConfig { .. } => IoResult::Config(Box::new(self.config.clone())),
            IoRequest::SavePlan(plan) => {
                let name = format!("plan-{}", self.blobs.len());
                self.blobs.insert(name.clone(), Arc::new(IndexedPlan::new((*plan).clone())));
                IoResult::PlanSaved(name)
            }
            IoRequest::SaveOutcome(_) if self.is_full => IoResult::OutcomeSaved(None),
            IoRequest::SaveOutcome(_) => {
                self.outcomes += 1;
                IoResult::OutcomeSaved(Some(format!("outcome-{}", self.outcomes)))
            }
        }
    }

    /// Runs until something is to be committed, or the reconciliation ends.
    pub(super) fn reconcile_to_write(
        &mut self,
        world: &FakeFleet,
        executor: &mut Executor,
        result: IoResult,
    ) -> NextAction<Box<ControllerWrite>, ReconcileResult> {
        let mut next = world.with_input(|input| executor.next(input, result));
        while let NextAction::Io(io) = next {
            let result = self.perform(world, io);
            next = world.with_input(|input| executor.next(input, result));
        }
        next
    }

    /// Carries out a reconciliation to its end.
    pub(super) fn finish(
        &mut self,
        world: &mut FakeFleet,
        executor: &mut Executor,
        result: IoResult,
    ) -> ReconcileResult {
        let mut result = result;
        loop {
            match self.reconcile_to_write(world, executor, result) {
                NextAction::Commit(write) => {
                    if let Some(known) = &write.before {
                        assert_eq!(known.len(), write.txn.ops.len(), "a value for each operation");
                    }
                    result = IoResult::Commit(commit(world, &write.txn));
                }
                NextAction::Done(outcome) => return outcome,
                NextAction::Io(io) => unreachable!("{io:?} was performed"),
            }
        }
    }

    /// One complete reconciliation.
    pub(super) fn reconcile(&mut self, world: &mut FakeFleet, executor: &mut Executor) -> ReconcileResult {
        self.finish(world, executor, IoResult::Start)
    }

    /// Runs a request up to its first write.
    pub(super) fn until_written<R: OperatorRequest>(
        &mut self,
        world: &FakeFleet,
        request: R,
    ) -> Result<(RequestExecutor<R>, Txn), R::Error> {
        let (mut executor, first) = RequestExecutor::new(request);
        let mut result = self.perform(world, first);
        loop {
            match world.with_input(|input| executor.next(input, result))? {
                NextAction::Io(io) => result = self.perform(world, io),
                NextAction::Commit(txn) => return Ok((executor, txn)),
                NextAction::Done(_) => unreachable!("the request ended without a write"),
            }
        }
    }

    /// Runs a request to its end.
    pub(super) fn resume_request<R: OperatorRequest>(
        &mut self,
        world: &mut FakeFleet,
        executor: &mut RequestExecutor<R>,
        result: IoResult,
    ) -> Result<R::Outcome, R::Error> {
        let mut result = result;
        loop {
            result = match world.with_input(|input| executor.next(input, result))? {
                NextAction::Io(io) => self.perform(world, io),
                NextAction::Commit(txn) => IoResult::Commit(commit(world, &txn)),
                NextAction::Done(done) => return Ok(done),
            };
        }
    }

    pub(super) fn run<R: OperatorRequest>(
        &mut self,
        world: &mut FakeFleet,
        request: R,
    ) -> Result<R::Outcome, R::Error> {
        let (mut executor, first) = RequestExecutor::new(request);
        let result = self.perform(world, first);
        self.resume_request(world, &mut executor, result)
    }
}

fn request_name(io: &IoRequest) -> &'static str {
    match io {
        IoRequest::StoreRevision => "revision",
        IoRequest::AwaitView(_) => "view",
        IoRequest::LoadPlan(_) => "plan",
        IoRequest::LoadConfig { .. } => "config",
        IoRequest::SavePlan(_) => "save plan",
        IoRequest::SaveOutcome(_) => "save outcome",
    }
}

pub(super) fn commit(world: &mut FakeFleet, txn: &Txn) -> CommitResult {
    match world.commit(txn) {
        Ok(revision) => CommitResult::Committed(revision),
        Err(_) => CommitResult::Conflict(world.fleet.revision),
    }
}

/// Three nodes, one at a time; a failure rolls all of them back.
pub(super) fn strategy() -> Strategy {
    let none = Amount::Nodes(0);
    let failures = FailureLimits { canary: none, wave: none, total: none };
    Strategy { failures, on_failure: OnFailure::Rollback, ..Strategy::one_wave(Amount::Nodes(1)) }
}

/// A rollout that has started and granted nothing.
pub(super) fn started_rollout() -> (FakeFleet, FakeHost) {
    started_with(strategy())
}

pub(super) fn started_with(strategy: Strategy) -> (FakeFleet, FakeHost) {
    started_nodes(3, strategy)
}

pub(super) fn started_nodes(nodes: u32, strategy: Strategy) -> (FakeFleet, FakeHost) {
    let mut world = FakeFleet::with_roles(&[("web", nodes, "a b")]);
    let request = request("v2", strategy);
    let plan = world.with_input(|input| plan(input, &request)).unwrap();
    let options = StartOptions { request: "one".into(), by: "ada".into(), supersede: false };
    let started = world.with_input(|input| start(input, &plan, "plan-0", options)).unwrap();
    world.commit(&started.txn.unwrap()).unwrap();
    let mut host = FakeHost::default();
    host.blobs.insert("plan-0".into(), Arc::new(IndexedPlan::new(plan)));
    (world, host)
}

/// A rollout whose first node has failed: it is to be rolled back.
pub(super) fn failed() -> (FakeFleet, FakeHost, Executor) {
    let (mut world, mut host) = started_rollout();
    let mut executor = Executor::checked();
    host.reconcile(&mut world, &mut executor);
    let node = granted(&world).pop().unwrap();
    world.answers(&node, RunEnd::Failed(RunReason::NotCompiled));
    host.requests.clear();
    (world, host, executor)
}

pub(super) fn record(world: &FakeFleet, id: u64) -> RolloutRecord {
    world.fleet.rollouts().get(&RolloutId(id)).unwrap().0.clone()
}

pub(super) fn phase(world: &FakeFleet) -> RolloutPhase {
    world.fleet.active_rollout_record().unwrap().0.phase.clone()
}

/// Nodes with a grant of the active rollout.
pub(super) fn granted(world: &FakeFleet) -> Vec<String> {
    let (record, _) = world.fleet.active_rollout_record().unwrap();
    let nodes = world
        .fleet
        .nodes()
        .filter(|(name, _)| world.fleet.granted(name).is_some_and(|(grant, _)| grant.rollout == record.id));
    nodes.map(|(name, _)| name.to_string()).collect()
}

pub(super) fn apply(world: &mut FakeFleet, command: &RolloutCommand) {
    let (record, at) = world.fleet.active_rollout_record().unwrap();
    let change = world.with_input(|input| apply_command(None, record, command, "ada", input)).unwrap().unwrap();
    let txn = change.txn(&world.fleet, at).unwrap();
    world.commit(&txn).unwrap();
}

/// Nodes that a write grants.
pub(super) fn grants(write: &ControllerWrite) -> Vec<String> {
    match &write.kind {
        WriteKind::Step { change, .. } => change.grants.iter().map(|grant| grant.node.to_string()).collect(),
        WriteKind::Rollback { .. } | WriteKind::Outcome { .. } => Vec::new(),
    }
}

pub(super) fn to_commit(next: NextAction<Box<ControllerWrite>, ReconcileResult>) -> Box<ControllerWrite> {
    match next {
        NextAction::Commit(write) => write,
        NextAction::Done(outcome) => panic!("there is no write: {outcome:?}"),
        NextAction::Io(io) => panic!("{io:?} is needed"),
    }
}
