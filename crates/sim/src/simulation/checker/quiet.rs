//! Checks that timed runs cause no write if there is nothing to report (I15).

use std::collections::{BTreeMap, BTreeSet};

use muster_agent::report::unsent::UnsentReport;
use muster_agent::state::ledger::RunningRun;
use muster_core::keys::{self, Key};
use muster_core::names::{RunId, Version};
use muster_core::report::{Cause, Outcome, RunResult, Verdict};
use muster_store::WatchChange;

use super::{Checker, Rule};
use crate::simulation::event::MachineNumber;

/// The incarnation of an agent, and the number of its machine's boots. Servers count a validation for these only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AgentLife {
    pub(crate) incarnation: Option<u64>,
    pub(crate) boots: u64,
}

/// A validation that an agent has reported, or will report.
#[derive(Clone, Debug)]
struct ReportedValidation {
    run: RunId,
    version: Version,
    verdict: Verdict,
    life: AgentLife,
}

#[derive(Clone, Debug, Default)]
pub(super) struct QuietRuns {
    /// The last validation of each machine.
    validated: BTreeMap<MachineNumber, ReportedValidation>,
    /// Timed runs whose applier has changed nothing.
    unchanged: BTreeSet<RunId>,
    /// Machines whose last preview may have found drift, or does not count.
    drifted: BTreeSet<MachineNumber>,
    /// Runs without anything to report, with the incarnation of their agent.
    quiet: BTreeMap<RunId, Option<u64>>,
}

fn is_timed(run: &RunningRun) -> bool {
    run.causes == [Cause::Schedule]
}

impl QuietRuns {
    pub(super) fn applier_ended(&mut self, machine: MachineNumber, run: &RunningRun, result: RunResult) {
        match result {
            RunResult::Unchanged if is_timed(run) => {
                self.unchanged.insert(run.run.clone());
            }
            RunResult::Unchanged | RunResult::Changed => {
                self.drifted.remove(&machine);
            }
            RunResult::Failed | RunResult::Pending => {}
        }
    }
}

impl Checker {
    /// An agent has stored a report, which servers get sooner or later.
    pub(crate) fn report_stored(&mut self, machine: MachineNumber, report: &UnsentReport, life: AgentLife) {
        if let Outcome::Validated(verdict) = report.outcome {
            let (run, version) = (report.run.clone(), report.version.clone());
            self.quiet_runs.validated.insert(machine, ReportedValidation { run, version, verdict, life });
        }
    }

    /// The checks of a run have ended. A timed run is quiet if its applier changed nothing, and if the servers know the
    /// result of its checks.
    pub(crate) fn run_ended(&mut self, machine: MachineNumber, run: &RunningRun, verdict: Verdict, life: AgentLife) {
        let runs = &mut self.quiet_runs;
        let is_known = runs.validated.get(&machine).is_some_and(|known| {
            // The report of this run itself may be stored already, if its checks are repeated.
            known.run != run.run && known.version == run.version && known.verdict == verdict && known.life == life
        });
        runs.quiet.remove(&run.run);
        if is_known && runs.unchanged.contains(&run.run) {
            runs.quiet.insert(run.run.clone(), life.incarnation);
        }
    }

    /// A timed preview has ended. It is quiet if there was no drift before, and there is none now.
    pub(crate) fn preview_ended(
        &mut self,
        machine: MachineNumber,
        run: &RunningRun,
        result: RunResult,
        life: AgentLife,
    ) {
        let runs = &mut self.quiet_runs;
        if result != RunResult::Unchanged {
            runs.drifted.insert(machine);
        } else if !runs.drifted.remove(&machine) && is_timed(run) {
            runs.quiet.insert(run.run.clone(), life.incarnation);
        }
    }

    /// An agent has another incarnation. What it has reported before no longer counts, so it reports its next preview.
    pub(super) fn incarnation_changed(&mut self, machine: MachineNumber) {
        self.quiet_runs.drifted.insert(machine);
    }

    /// An agent was killed. The result of its last preview may be lost.
    pub(crate) fn agent_killed(&mut self, machine: MachineNumber) {
        self.quiet_runs.drifted.insert(machine);
    }

    /// Checks that the reports of a transaction are of no quiet run.
    pub(super) fn check_quiet(&mut self, changes: &[WatchChange]) {
        for change in changes {
            let WatchChange::Put(kv) = change else { continue };
            if self.quiet_runs.quiet.is_empty() {
                continue;
            }
            let (node, ended) = match keys::parse(&kv.key) {
                Some((_, Key::PastRun { node, run })) => (node, Some(run)),
                Some((_, Key::Observed { node })) => (node, None),
                Some(_) | None => continue,
            };
            let Some((stored, _)) = self.fleet.get(&node).and_then(|node| node.observed.as_ref()) else { continue };
            let Some(run) = ended.or_else(|| stored.open.as_ref().map(|open| open.run.clone())) else { continue };
            if self.quiet_runs.quiet.get(&run).is_some_and(|quiet| *quiet == Some(stored.incarnation)) {
                self.report(Rule::Quiet, format!("{node} reports the timed run {run}, which found nothing new"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_agent::state::ledger::{Ledger, RunPhase, Work};
    use muster_core::names::{EnvName, NodeName};
    use muster_core::txn::{Generation, Revision};
    use muster_store::KeyValue;

    use super::*;
    use crate::simulation::checker::{CommittedTxn, Plans};
    use crate::simulation::event::SimTime;
    use crate::simulation::store::Writer;
    use crate::simulation::world::START;

    const LIFE: AgentLife = AgentLife { incarnation: Some(1), boots: 0 };

    fn timed_run(run: &str) -> RunningRun {
        RunningRun {
            run: RunId::new(run).unwrap(),
            work: Work::Run,
            seq: 3,
            phase: RunPhase::Applying,
            version: Version::new("v1").unwrap(),
            digest: String::new(),
            generation: Generation { epoch: 1, number: 1 },
            causes: vec![Cause::Schedule],
            failures: 0,
            first_failure: None,
            hooks: Vec::new(),
            unchanged: false,
            started: START,
            order: None,
        }
    }

    /// A checker of a machine whose servers know that its checks pass.
    fn checker() -> Checker {
        let mut checker = Checker::new(EnvName::new("prod").unwrap());
        checker.machine(0, &NodeName::new("web1").unwrap());
        let (run, version) = (RunId::new("r1").unwrap(), Version::new("v1").unwrap());
        let known = ReportedValidation { run, version, verdict: Verdict::Passed, life: LIFE };
        checker.quiet_runs.validated.insert(0, known);
        checker
    }

    /// True if the checker refuses a report of this run in this incarnation.
    fn refuses(mut checker: Checker, run: &str, incarnation: u64) -> bool {
        let entry = format!(
            r#"{{"run":"{run}","version":"v1","phase":"validated","result":"passed","causes":[{{"kind":"schedule"}}],
                "started":"{START}","ended":"{START}"}}"#
        );
        let observed = format!(r#"{{"incarnation":{incarnation},"seq":4}}"#);
        let put = |key: &str, value: String| {
            let key = format!("/muster/prod/{key}");
            WatchChange::Put(KeyValue { key, value: value.into(), revision: Revision(1), lease: None })
        };
        let changes = [put("observed/web1", observed), put(&format!("history/web1/{run}"), entry)];
        let (at, revision) = (SimTime::ZERO, Revision(1));
        checker.committed(&CommittedTxn { at, revision, changes: &changes, writer: &Writer::Server }, &Plans::new());
        checker.violations().iter().any(|violation| violation.rule == Rule::Quiet)
    }

    #[test]
    fn report_of_an_unchanged_timed_run_is_refused() {
        let ended = |result, verdict, life| {
            let mut checker = checker();
            checker.applier_ends(0, &timed_run("r2"), result, SimTime::ZERO);
            checker.run_ended(0, &timed_run("r2"), verdict, life);
            checker
        };
        let quiet = || ended(RunResult::Unchanged, Verdict::Passed, LIFE);
        assert!(refuses(quiet(), "r2", 1));
        assert!(!refuses(quiet(), "r3", 1), "another run");
        assert!(!refuses(quiet(), "r2", 2), "its validation counts for another incarnation");
        assert!(!refuses(ended(RunResult::Changed, Verdict::Passed, LIFE), "r2", 1), "it repaired drift");
        assert!(!refuses(ended(RunResult::Unchanged, Verdict::Failed, LIFE), "r2", 1), "its checks fail");
        let rebooted = AgentLife { boots: 1, ..LIFE };
        assert!(!refuses(ended(RunResult::Unchanged, Verdict::Passed, rebooted), "r2", 1), "the machine was rebooted");
    }

    #[test]
    fn report_of_a_preview_without_news_is_refused() {
        let preview = |run: &str| RunningRun { work: Work::Preview, ..timed_run(run) };
        let after = |results: &[RunResult]| {
            let mut checker = checker();
            for (number, result) in results.iter().enumerate() {
                checker.preview_ended(0, &preview(&format!("p{number}")), *result, LIFE);
            }
            checker
        };
        assert!(refuses(after(&[RunResult::Unchanged]), "p0", 1));
        assert!(!refuses(after(&[RunResult::Changed]), "p0", 1));
        assert!(!refuses(after(&[RunResult::Changed, RunResult::Unchanged]), "p1", 1), "the drift has ended");
        assert!(refuses(after(&[RunResult::Changed, RunResult::Unchanged, RunResult::Unchanged]), "p2", 1));
        let mut renewed = checker();
        let ledger = Ledger::new(EnvName::new("prod").unwrap(), NodeName::new("web1").unwrap());
        renewed.ledger_saved(0, &ledger, &Ledger { incarnation: Some(2), ..ledger.clone() });
        renewed.preview_ended(0, &preview("p0"), RunResult::Unchanged, AgentLife { incarnation: Some(2), ..LIFE });
        assert!(!refuses(renewed, "p0", 2), "the servers do not know its drift in this incarnation");
    }
}
