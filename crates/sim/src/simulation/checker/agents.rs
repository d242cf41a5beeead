//! Checks the agents: one applier at a time, and no older or undesired version (I4, I5, I11).

use std::collections::{BTreeMap, BTreeSet};

use muster_agent::state::ledger::{Ledger, RunningRun, Work};
use muster_core::fleet::Fleet;
use muster_core::names::{NodeName, Version};
use muster_core::report::{Cause, RunResult};
use muster_core::txn::Generation;
use muster_store::WatchChange;

use super::{Checker, CommittedTxn, Rule};
use crate::simulation::event::{MachineNumber, SimTime};

#[derive(Clone, Debug, Default)]
pub(super) struct Agents {
    /// The last generation that a machine acted on.
    acted: BTreeMap<MachineNumber, Generation>,
    /// The version of each generation, for all nodes and for single ones.
    base: BTreeMap<Generation, GivenVersion>,
    own: BTreeMap<(NodeName, Generation), GivenVersion>,
    /// Generations that machines have rolled back by themselves. They run and check the previous release in their place,
    /// and check it also after a newer generation has arrived.
    rolled_back: BTreeSet<(MachineNumber, Generation)>,
    /// True if a machine's run may be of an older release.
    may_be_older: BTreeMap<MachineNumber, bool>,
    /// The last version that a machine has validated.
    pub(super) proved: BTreeMap<MachineNumber, Version>,
}

#[derive(Clone, Debug)]
struct GivenVersion {
    version: Version,
    allow_older: bool,
}

impl Agents {
    pub(super) fn base_of(&self, fleet: &Fleet) -> Option<Generation> {
        fleet.base().map(|base| base.generation)
    }

    /// Records the desired versions of a transaction.
    pub(super) fn record_desired(&mut self, seen: &CommittedTxn<'_>, fleet: &Fleet, before: Option<Generation>) {
        if let Some(base) = fleet.base().filter(|base| Some(base.generation) != before) {
            self.base.insert(base.generation, GivenVersion { version: base.version, allow_older: base.allow_older });
        }
        for change in seen.changes {
            let WatchChange::Put(kv) = change else { continue };
            if !kv.key.contains("/desired/") {
                continue;
            }
            let Some(name) = kv.key.rsplit('/').next().and_then(|name| NodeName::new(name).ok()) else { continue };
            if let Some(desired) = fleet.desired_of(&name) {
                let given = GivenVersion { version: desired.version, allow_older: desired.allow_older };
                self.own.insert((name, desired.generation), given);
            }
        }
    }
}

impl Checker {
    pub(crate) fn ledger_saved(&mut self, machine: MachineNumber, before: &Ledger, after: &Ledger) {
        let of = |ledger: &Ledger| ledger.desired.as_ref().map(|desired| desired.generation);
        if of(after) < of(before) {
            let what =
                format!("{}: the generation decreases from {:?} to {:?}", self.names[machine], of(before), of(after));
            self.report(Rule::Monotone, what);
        }
        if before.incarnation != after.incarnation {
            self.incarnation_changed(machine);
        }
    }

    pub(crate) fn applier_starts(&mut self, machine: MachineNumber, another: bool, gave_up: bool, run: &RunningRun) {
        let name = self.names[machine].clone();
        if another {
            self.report(Rule::SingleApply, format!("{name} starts a second applier"));
        }
        let generation = run.generation;
        let acts = match run.work {
            Work::Run | Work::Preview | Work::Hooks => true,
            // It checks what was applied before, also while a run of a newer generation is paused.
            Work::Validation => false,
        };
        let acted = self.agents.acted.entry(machine).or_default();
        if generation >= *acted {
            *acted = generation;
        } else if acts {
            let acted = *acted;
            self.report(Rule::Monotone, format!("{name} acts on {generation} after {acted}"));
        }
        // An automatic rollback is the node's own decision.
        if gave_up || run.causes.iter().any(|cause| matches!(cause, Cause::AutoRollback { .. })) {
            self.agents.rolled_back.insert((machine, generation));
        }
        let rolls_back = self.agents.rolled_back.contains(&(machine, generation));
        let own = self.agents.own.get(&(name.clone(), generation));
        let given = own.or_else(|| self.agents.base.get(&generation)).cloned();
        let may_be_older = rolls_back || given.as_ref().is_none_or(|given| given.allow_older);
        self.agents.may_be_older.insert(machine, may_be_older);
        if !rolls_back && given.as_ref().map(|given| &given.version) != Some(&run.version) {
            let what = format!("{name} applies {} at generation {generation}, whose version is {given:?}", run.version);
            self.report(Rule::SingleGrant, what);
        }
    }

    pub(crate) fn applier_ends(&mut self, machine: MachineNumber, run: &RunningRun, result: RunResult, now: SimTime) {
        self.quiet_runs.applier_ended(machine, run, result);
        let version = run.version.clone();
        let serial = |version| self.fleet.releases().get(version).map(|release| release.serial);
        let before = self.agents.proved.get(&machine);
        let is_older = before.is_some_and(|before| serial(&version) < serial(before));
        let may_be = self.agents.may_be_older.get(&machine).copied().unwrap_or(true);
        if result == RunResult::Changed && is_older && !may_be {
            let what = format!("{} is downgraded from {before:?} to {version} without permission", self.names[machine]);
            self.report(Rule::Downgrade, what);
        }
        match result {
            RunResult::Changed => {
                self.proofs.applied.insert(machine, (version, now));
            }
            RunResult::Unchanged => {
                // An unchanged run keeps the earlier validation.
                let node = self.fleet.get(&self.names[machine]);
                let proved = node
                    .and_then(|node| node.state())
                    .is_some_and(|(state, _)| state.is_validated() && *state.version() == version);
                if proved {
                    self.is_healthy(machine, &version);
                }
                self.proofs.applied.insert(machine, (version, now));
            }
            RunResult::Failed => {
                self.proofs.applied.remove(&machine);
            }
            RunResult::Pending => {}
        }
    }

    pub(crate) fn applier_cut_off(&mut self, machine: MachineNumber, _now: SimTime) {
        self.proofs.checks_began.remove(&machine);
    }

    pub(crate) fn rebooted(&mut self, machine: MachineNumber) {
        self.proofs.checks_began.remove(&machine);
    }
}
