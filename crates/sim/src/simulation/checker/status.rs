//! Checks the stored status of nodes: one state, backed by a real run, and reports in order (I1, I2).

use std::collections::{BTreeMap, BTreeSet};

use muster_agent::state::ledger::RunningRun;
use muster_core::keys::{self, Key};
use muster_core::names::{NodeName, RunId, Version};
use muster_core::node::service_state::ServiceState;
use muster_store::WatchChange;

use super::{Checker, Rule};
use crate::simulation::event::{MachineNumber, SimTime};

/// Evidence of what really ran on the machines.
#[derive(Clone, Debug, Default)]
pub(super) struct RunEvidence {
    /// Runs whose checks passed, at a version that was really applied.
    validated: BTreeSet<(RunId, Version)>,
    /// The time and version of the last successful applier of a machine.
    pub(super) applied: BTreeMap<MachineNumber, (Version, SimTime)>,
    pub(super) checks_began: BTreeMap<MachineNumber, SimTime>,
    /// The last applied report, and the boot of the machine that its agent has last connected from.
    last: BTreeMap<NodeName, ((u64, u64), Option<String>)>,
}

/// The nodes whose record a transaction writes: it applies a report, or accepts an agent in a new incarnation or after another
/// boot.
pub(super) fn recorded(changes: &[WatchChange]) -> BTreeSet<NodeName> {
    let of = |change: &WatchChange| match change {
        WatchChange::Put(kv) if kv.key.contains("/observed/") => match keys::parse(&kv.key) {
            Some((_, Key::Observed { node })) => Some(node),
            Some(_) | None => None,
        },
        WatchChange::Put(_) | WatchChange::Delete { .. } => None,
    };
    changes.iter().filter_map(of).collect()
}

impl Checker {
    pub(crate) fn checks_start(&mut self, machine: MachineNumber, now: SimTime) {
        self.proofs.checks_began.insert(machine, now);
    }

    pub(crate) fn checks_end(&mut self, machine: MachineNumber, run: &RunningRun, passed: bool, now: SimTime) {
        let version = &run.version;
        let began = self.proofs.checks_began.get(&machine).copied().unwrap_or(now);
        let applied = self.proofs.applied.get(&machine);
        let was_applied = applied.is_some_and(|(at, when)| at == version && *when <= began);
        if passed && was_applied {
            self.proofs.validated.insert((run.run.clone(), version.clone()));
            self.agents.proved.insert(machine, version.clone());
            self.is_healthy(machine, version);
        }
    }

    /// Checks the stored state of a node after a transaction. `is_recorded`: it wrote the record of the node.
    pub(super) fn check_status(&mut self, name: &NodeName, is_recorded: bool) {
        let Some(node) = self.fleet.get(name) else {
            self.proofs.last.remove(name);
            return;
        };
        let mut found = Vec::new();
        if node.states.len() > 1 {
            found.push((Rule::OneState, format!("{name} is in {} states", node.states.len())));
        }
        if node.running.len() > 1 {
            found.push((Rule::VersionTruth, format!("{name} runs {} versions", node.running.len())));
        }
        if let Some((observed, _)) = &node.observed {
            let state = node.state().map(|(state, _)| state);
            if state != observed.state.as_ref() {
                found.push((
                    Rule::OneState,
                    format!("{name}: the index has {state:?}, its record has {:?}", observed.state),
                ));
            }
            if node.running.first() != observed.running.as_ref() {
                let running = node.running.first();
                let what = format!("{name}: running_version is {running:?}, its record has {:?}", observed.running);
                found.push((Rule::VersionTruth, what));
            }
            let now = (observed.incarnation, observed.seq);
            match self.proofs.last.insert(name.clone(), (now, observed.boot.clone())) {
                Some((before, _)) if now < before => {
                    found.push((Rule::ReportOrder, format!("{name}: report {now:?} is applied after {before:?}")));
                }
                Some((before, boot)) if is_recorded && now == before && boot == observed.boot => {
                    found.push((Rule::ReportOrder, format!("report {now:?} of {name} is applied a second time")));
                }
                Some(_) | None => {}
            }
        }
        if let Some((state @ ServiceState::Validated { version, .. }, leaf)) = node.state()
            && state.is_validated()
            && !self.proofs.validated.contains(&(leaf.run.clone(), version.clone()))
        {
            let what = format!("{name} is recorded as validated at {version} by run {}, which never passed", leaf.run);
            found.push((Rule::VersionTruth, what));
        }
        for (rule, what) in found {
            self.report(rule, what);
        }
    }
}
