//! The checker for a fleet of real processes. It gets the history of a real store, and the records of the appliers.
//!
//! The trace is merged into a possible order: a run after the transaction that caused it, and the transaction with its
//! result after its checks. Times are only compared with each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_agent::state::ledger::{RunPhase, RunningRun, Work};
use muster_core::names::{EnvName, NodeName, ReplicaId, RunId, Version};
use muster_core::replica::ControllerName;
use muster_core::report::{Cause, RunResult};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::txn::{Generation, Revision};
use muster_rollout::step::IndexedPlan;
use muster_store::WatchChange;

use super::{Checker, CommittedTxn, Plans, Rule, Violation};
use crate::simulation::event::{MachineNumber, SimTime};
use crate::simulation::store::Writer;
use crate::simulation::world::START;

/// The author of a transaction, as far as it can be observed from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceWriter {
    /// The rollout controller on this server.
    Engine(ReplicaId),
    Operator,
    /// Anything else: agents, servers, or an expired lease.
    Other,
}

/// A run, as recorded by its applier and the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRun {
    pub run: RunId,
    pub version: Version,
    pub generation: Generation,
    pub causes: Vec<Cause>,
}

/// Checks a recorded trace of a real fleet against the rules of the simulator.
#[derive(Debug)]
pub struct TraceChecker {
    checker: Checker,
    plans: Plans,
    machines: BTreeMap<NodeName, MachineNumber>,
    /// The run on each machine.
    busy: BTreeMap<MachineNumber, RunId>,
}

impl TraceChecker {
    /// `slack`: the largest difference between two clocks of the fleet.
    pub fn new(env: EnvName, slack: Duration) -> Self {
        let checker = Checker { slack, apart: slack, is_inside: false, ..Checker::new(env) };
        Self { checker, plans: Plans::new(), machines: BTreeMap::new(), busy: BTreeMap::new() }
    }

    /// Adds a plan under its digest, before the first transaction that names it.
    pub fn plan(&mut self, digest: String, plan: RolloutPlan) {
        self.plans.insert(digest, Arc::new(IndexedPlan::new(plan)));
    }

    pub fn committed(&mut self, at: SimTime, revision: Revision, changes: &[WatchChange], word: TraceWriter) {
        let writer = match word {
            TraceWriter::Engine(replica) => Writer::Controller { name: ControllerName::Rollout, replica, before: None },
            TraceWriter::Operator => Writer::Operator,
            TraceWriter::Other => Writer::Server,
        };
        self.checker.committed(&CommittedTxn { at, revision, changes, writer: &writer }, &self.plans);
    }

    /// The checks of a gate have really passed.
    pub fn gate_passed(&mut self, id: RolloutId, wave: usize) {
        self.checker.gate_said(id, wave, true);
    }

    pub fn applier_starts(&mut self, node: &NodeName, run: &TraceRun) {
        let machine = self.machine(node);
        let another = self.busy.insert(machine, run.run.clone()).is_some();
        self.checker.applier_starts(machine, another, false, &running(run));
    }

    pub fn applier_ends(&mut self, node: &NodeName, run: &TraceRun, result: RunResult, at: SimTime) {
        let machine = self.machine(node);
        if self.busy.remove(&machine).as_ref() != Some(&run.run) {
            self.checker.report(Rule::SingleApply, format!("{node} ends run {}, which was not in progress", run.run));
        }
        self.checker.applier_ends(machine, &running(run), result, at);
    }

    pub fn checks_start(&mut self, node: &NodeName, at: SimTime) {
        let machine = self.machine(node);
        self.checker.checks_start(machine, at);
    }

    pub fn checks_end(&mut self, node: &NodeName, run: &TraceRun, passed: bool, at: SimTime) {
        let machine = self.machine(node);
        self.checker.checks_end(machine, &running(run), passed, at);
    }

    /// A server was killed or stopped.
    pub fn replica_lost(&mut self, id: &ReplicaId, at: SimTime) {
        self.checker.replica_lost(id, at);
    }

    /// The duration of each takeover of the rollout controller.
    pub fn takeovers(&self) -> &[SimTime] {
        self.checker.takeovers()
    }

    pub fn violations(&self) -> &[Violation] {
        self.checker.violations()
    }

    fn machine(&mut self, node: &NodeName) -> MachineNumber {
        if let Some(machine) = self.machines.get(node) {
            return *machine;
        }
        let machine = self.machines.len();
        self.machines.insert(node.clone(), machine);
        self.checker.machine(machine, node);
        machine
    }
}

/// The fields of a run that the checker reads.
fn running(run: &TraceRun) -> RunningRun {
    RunningRun {
        run: run.run.clone(),
        work: Work::Run,
        seq: 0,
        phase: RunPhase::Applying,
        version: run.version.clone(),
        digest: String::new(),
        generation: run.generation,
        causes: run.causes.clone(),
        failures: 0,
        first_failure: None,
        hooks: Vec::new(),
        unchanged: false,
        started: START,
        order: None,
    }
}

#[cfg(test)]
mod tests {
    use muster_store::KeyValue;

    use super::*;

    fn name<T, E: std::fmt::Debug>(made: Result<T, E>) -> T {
        made.unwrap()
    }

    #[test]
    fn grant_without_record_and_unknown_run_are_found() {
        let mut checker = TraceChecker::new(name(EnvName::new("test")), Duration::ZERO);
        let grant = r#"{"version":"v2","rollout":1,"granted":"2026-11-15T10:00:00Z"}"#;
        let put = KeyValue {
            key: "/muster/test/desired/web1".into(),
            value: grant.into(),
            revision: Revision(5),
            lease: None,
        };
        let replica = name(ReplicaId::new("a-1"));
        checker.committed(Duration::ZERO, Revision(5), &[WatchChange::Put(put)], TraceWriter::Engine(replica));
        let node = name(NodeName::new("web1"));
        let run = TraceRun {
            run: name(RunId::new("r1")),
            version: name(Version::new("v3")),
            generation: Generation { epoch: 1, number: 5 },
            causes: Vec::new(),
        };
        checker.applier_starts(&node, &run);
        checker.applier_starts(&node, &run);
        let rules: Vec<Rule> = checker.violations().iter().map(|violation| violation.rule).collect();
        assert!(rules.contains(&Rule::OneHolder), "{:?}", checker.violations());
        assert!(rules.contains(&Rule::StopMeansStop), "{:?}", checker.violations());
        assert!(rules.contains(&Rule::SingleGrant), "{:?}", checker.violations());
        assert!(rules.contains(&Rule::SingleApply), "{:?}", checker.violations());
    }
}
