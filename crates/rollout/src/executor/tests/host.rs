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
    pub(super) way: RolloutConfig,
    /// The IO requests, in order.
    pub(super) asked: Vec<&'static str>,
}

impl FakeHost {
    pub(super) fn bring(&mut self, world: &FakeFleet, need: IoRequest) -> IoResult {
        self.asked.push(word(&need));
        match need {
            IoRequest::StoreRevision => IoResult::StoreRevision(world.fleet.revision),
            IoRequest::AwaitView(revision) => {
                assert!(world.fleet.revision >= revision, "nothing is waited for that never comes");
                IoResult::ViewReached
            }
            IoRequest::LoadPlan(name) => {
                IoResult::Plan(self.blobs.get(&name).cloned().ok_or_else(|| format!("{name} is missing")))
            }
            IoRequest::LoadConfig { .. } => IoResult::Config(Box::new(self.way.clone())),
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
    pub(super) fn look(
        &mut self,
        world: &FakeFleet,
        executor: &mut Executor,
        got: IoResult,
    ) -> NextAction<Box<ControllerWrite>, ReconcileResult> {
        let mut next = world.with_input(|input| executor.next(input, got));
        while let NextAction::Io(need) = next {
            let got = self.bring(world, need);
            next = world.with_input(|input| executor.next(input, got));
        }
        next
    }

    /// Carries out a reconciliation to its end.
    pub(super) fn finish(&mut self, world: &mut FakeFleet, executor: &mut Executor, got: IoResult) -> ReconcileResult {
        let mut got = got;
        loop {
            match self.look(world, executor, got) {
                NextAction::Commit(write) => got = IoResult::Commit(commit(world, &write.txn)),
                NextAction::Done(looked) => return looked,
                NextAction::Io(need) => unreachable!("{need:?} was brought"),
            }
        }
    }

    /// One complete reconciliation.
    pub(super) fn look_once(&mut self, world: &mut FakeFleet, executor: &mut Executor) -> ReconcileResult {
        self.finish(world, executor, IoResult::Start)
    }

    /// Runs a request up to its first write.
    pub(super) fn until_written<R: OperatorRequest>(
        &mut self,
        world: &FakeFleet,
        request: R,
    ) -> Result<(RequestExecutor<R>, Txn), R::Error> {
        let (mut errand, first) = RequestExecutor::new(request);
        let mut got = self.bring(world, first);
        loop {
            match world.with_input(|input| errand.next(input, got))? {
                NextAction::Io(need) => got = self.bring(world, need),
                NextAction::Commit(txn) => return Ok((errand, txn)),
                NextAction::Done(_) => unreachable!("nothing was written"),
            }
        }
    }

    /// Runs a request to its end.
    pub(super) fn run_on<R: OperatorRequest>(
        &mut self,
        world: &mut FakeFleet,
        errand: &mut RequestExecutor<R>,
        got: IoResult,
    ) -> Result<R::Outcome, R::Error> {
        let mut got = got;
        loop {
            got = match world.with_input(|input| errand.next(input, got))? {
                NextAction::Io(need) => self.bring(world, need),
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
        let (mut errand, first) = RequestExecutor::new(request);
        let got = self.bring(world, first);
        self.run_on(world, &mut errand, got)
    }
}

fn word(need: &IoRequest) -> &'static str {
    match need {
        IoRequest::StoreRevision => "newest",
        IoRequest::AwaitView(_) => "view",
        IoRequest::LoadPlan(_) => "plan",
        IoRequest::LoadConfig { .. } => "way",
        IoRequest::SavePlan(_) => "keep",
        IoRequest::SaveOutcome(_) => "keep outcome",
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
pub(super) fn begun() -> (FakeFleet, FakeHost) {
    begun_with(strategy())
}

pub(super) fn begun_with(strategy: Strategy) -> (FakeFleet, FakeHost) {
    let mut world = FakeFleet::of(&[("web", 3, "a b")]);
    let request = request("v2", strategy);
    let plan = world.with_input(|input| plan(input, &request)).unwrap();
    let who = StartOptions { request: "one".into(), by: "ada".into(), supersede: false };
    let started = world.with_input(|input| start(input, &plan, "plan-0", who)).unwrap();
    world.commit(&started.txn.unwrap()).unwrap();
    let mut host = FakeHost::default();
    host.blobs.insert("plan-0".into(), Arc::new(IndexedPlan::new(plan)));
    (world, host)
}

/// A rollout whose first node has failed: it is to be rolled back.
pub(super) fn failed() -> (FakeFleet, FakeHost, Executor) {
    let (mut world, mut host) = begun();
    let mut executor = Executor::default();
    host.look_once(&mut world, &mut executor);
    let node = granted(&world).pop().unwrap();
    world.answers(&node, RunEnd::Failed(RunReason::NotCompiled));
    host.asked.clear();
    (world, host, executor)
}

pub(super) fn record(world: &FakeFleet, id: u64) -> RolloutRecord {
    world.fleet.rollouts().get(&RolloutId(id)).unwrap().0.clone()
}

pub(super) fn phase(world: &FakeFleet) -> RolloutPhase {
    world.fleet.deciding_rollout().unwrap().0.phase.clone()
}

/// Nodes with a grant of the active rollout.
pub(super) fn granted(world: &FakeFleet) -> Vec<String> {
    let (record, _) = world.fleet.deciding_rollout().unwrap();
    let nodes = world
        .fleet
        .nodes()
        .filter(|(name, _)| world.fleet.granted(name).is_some_and(|(grant, _)| grant.rollout == record.id));
    nodes.map(|(name, _)| name.to_string()).collect()
}

pub(super) fn say(world: &mut FakeFleet, command: &RolloutCommand) {
    let (record, at) = world.fleet.deciding_rollout().unwrap();
    let operated = world.with_input(|input| apply_command(None, record, command, "ada", input)).unwrap().unwrap();
    let txn = operated.txn(&world.fleet, at).unwrap();
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
        NextAction::Done(looked) => panic!("nothing is to be written: {looked:?}"),
        NextAction::Io(need) => panic!("{need:?} is needed"),
    }
}
