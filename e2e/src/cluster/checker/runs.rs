//! Rules of runs: each has a valid cause, and reports match the appliers' journal.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::keys::Key;
use muster_core::names::NodeName;
use muster_core::report::record::{LastRun, ObservedRecord};
use muster_core::report::{Cause, Outcome, Verdict};
use muster_core::rollout::record::DesiredRecord;

use super::{ChangedKey, Violations};

/// A run in the applier's journal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExecutedRun {
    pub node: String,
    pub run: String,
}

#[derive(Debug, Default)]
pub(super) struct RunRules {
    pub(super) settled: bool,
    /// Number of agent starts.
    pub(super) starts: usize,
    /// Changes of the version: revision, which is the number of the generation, and version.
    chosen: BTreeMap<i64, String>,
    /// Grants of rollouts, for each node.
    granted: BTreeMap<(NodeName, i64), String>,
    nodes: BTreeMap<NodeName, SeenRuns>,
}

#[derive(Debug, Default)]
struct SeenRuns {
    runs: BTreeMap<String, ReportedRun>,
    /// Generations that have caused a run.
    answered: BTreeMap<u64, String>,
    starts: usize,
}

/// Reports of one run.
#[derive(Debug, Default)]
struct ReportedRun {
    configured: bool,
    passed: bool,
}

impl RunRules {
    pub(super) fn read(&mut self, revision: i64, changed: &[ChangedKey<'_>], violations: &mut Violations<'_>) {
        for changed in changed {
            match (&changed.key, changed.value) {
                (Key::CurrentVersion, Some(value)) => {
                    self.chosen.insert(revision, String::from_utf8_lossy(value).into_owned());
                }
                (Key::Desired { node }, Some(value)) => {
                    let grant: Option<DesiredRecord> = violations.json(&format!("desired/{node}"), value);
                    if let Some(grant) = grant {
                        self.granted.insert((node.clone(), revision), grant.version.to_string());
                    }
                }
                (Key::Observed { node }, Some(value)) => {
                    let observed: Option<ObservedRecord> = violations.json(&format!("observed/{node}"), value);
                    if let Some(last) = observed.and_then(|observed| observed.last) {
                        self.add_report(node, &last, violations);
                    }
                }
                _ => {}
            }
        }
    }

    fn add_report(&mut self, node: &NodeName, last: &LastRun, violations: &mut Violations<'_>) {
        let seen = self.nodes.entry(node.clone()).or_default();
        let is_new = !seen.runs.contains_key(last.run.as_str());
        let reported = seen.runs.entry(last.run.to_string()).or_default();
        match last.outcome {
            Outcome::Configured(_) => reported.configured = true,
            Outcome::Previewed(_) => {}
            Outcome::Validated(Verdict::Passed) => reported.passed = true,
            Outcome::Validated(Verdict::Failed) => {
                violations.push(format_args!("{node}: the validation of {} failed: {:?}", last.run, last.reason));
            }
        }
        if !is_new {
            return;
        }
        if last.causes.is_empty() {
            violations.push(format_args!("{node}: run {} has no cause", last.run));
        }
        let number = last.generation.number;
        let chosen = i64::try_from(number).ok().and_then(|number| {
            let granted = self.granted.get(&(node.clone(), number));
            granted.or_else(|| self.chosen.get(&number))
        });
        if chosen.map(String::as_str) != Some(last.version.as_str()) {
            let (run, version) = (&last.run, &last.version);
            violations.push(format_args!(
                "{node}: run {run} applied {version} for generation {number}, which chose {chosen:?}"
            ));
        }
        for cause in &last.causes {
            match cause {
                Cause::Version { .. } => {
                    if let Some(before) = seen.answered.insert(number, last.run.to_string()) {
                        let run = &last.run;
                        violations.push(format_args!("{node}: run {run} repeats generation {number}, after {before}"));
                    }
                }
                Cause::AgentStarted => {
                    seen.starts += 1;
                    if seen.starts > self.starts {
                        let (run, starts) = (&last.run, self.starts);
                        violations.push(format_args!(
                            "{node}: run {run} has the cause agent start, but there were only {starts} starts"
                        ));
                    }
                }
                Cause::LookedUp { .. } if !self.settled => {}
                Cause::LookedUp { .. }
                | Cause::Identity { .. }
                | Cause::Retry { .. }
                | Cause::Interrupted { .. }
                | Cause::Operator { .. }
                | Cause::Schedule
                | Cause::AutoRollback { .. } => {
                    violations.push(format_args!("{node}: run {} has the invalid cause {cause}", last.run));
                }
            }
        }
    }

    pub(super) fn triggered(&self, revision: i64, version: &str, violations: &mut Vec<String>) {
        match self.chosen.get(&revision).map(String::as_str) {
            Some(chosen) if chosen == version => {}
            other => violations
                .push(format!("version {version} was acknowledged at revision {revision}, where it is {other:?}")),
        }
    }

    pub(super) fn compare(&self, journal: &[ExecutedRun], violations: &mut Vec<String>) {
        let mut executed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for ExecutedRun { node, run } in journal {
            if !executed.entry(node).or_default().insert(run) {
                violations.push(format!("{node}: the applier ran twice for run {run}"));
            }
        }
        for (node, seen) in &self.nodes {
            let executed = executed.remove(node.as_str()).unwrap_or_default();
            for (run, reported) in &seen.runs {
                if !executed.contains(run.as_str()) {
                    violations.push(format!("{node}: run {run} was reported, but its applier never ran"));
                }
                if !(reported.configured && reported.passed) {
                    violations.push(format!("{node}: run {run} was reported only in part: {reported:?}"));
                }
            }
            for run in executed.iter().filter(|run| !seen.runs.contains_key(**run)) {
                violations.push(format!("{node}: the applier ran for run {run}, which was never reported"));
            }
        }
        for (node, executed) in executed {
            violations.push(format!("{node}: its applier ran {} times, and no run was reported", executed.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_core::report::{Cause, LookupChange};

    use super::super::HistoryChecker;
    use super::super::testing::{caused, configured, history, observed, put, validated};
    use super::*;

    fn check_runs(runs: &[(&str, LastRun)]) -> HistoryChecker {
        let mut checker = HistoryChecker::default();
        checker.agents_started(1);
        // Revision 2 chooses v1, so it is the generation of all runs.
        let mut transactions = vec![vec![put("current_version", "v1")]];
        transactions.extend(runs.iter().zip(1..).map(|((node, last), seq)| vec![observed(node, 1, seq, last.clone())]));
        checker.read(&history(&transactions));
        checker
    }

    fn reports(checker: &HistoryChecker, what: &str) -> bool {
        checker.violations().iter().any(|reported| reported.contains(what))
    }

    fn executed(run: &str) -> ExecutedRun {
        ExecutedRun { node: "web1".to_owned(), run: run.to_owned() }
    }

    #[test]
    fn second_run_for_a_generation_is_a_violation() {
        let (first, second) = (configured("r1", "v1"), configured("r2", "v1"));
        assert!(!reports(&check_runs(&[("web1", first.clone())]), "web1: run"));
        let checker = check_runs(&[("web1", first), ("web1", second)]);
        assert!(reports(&checker, "web1: run r2 repeats generation 2, after r1"), "{checker:?}");
    }

    #[test]
    fn run_without_a_valid_cause_is_a_violation() {
        let checker = check_runs(&[
            ("web1", caused("r1", vec![])),
            ("web2", caused("r2", vec![Cause::Retry { attempt: 1 }])),
            ("web3", caused("r3", vec![Cause::AgentStarted])),
            ("web3", caused("r4", vec![Cause::AgentStarted])),
        ]);
        assert!(reports(&checker, "web1: run r1 has no cause"), "{checker:?}");
        assert!(reports(&checker, "web2: run r2 has the invalid cause retry 1"), "{checker:?}");
        assert!(!reports(&checker, "run r3"), "{checker:?}");
        assert!(
            reports(&checker, "web3: run r4 has the cause agent start, but there were only 1 starts"),
            "{checker:?}"
        );
    }

    #[test]
    fn lookup_is_no_cause_after_the_fleet_settled() {
        let db2 = || LookupChange { key: "active_roles::db".to_owned(), what: "db2 added".to_owned() };
        let looked_up = || caused("r1", vec![Cause::LookedUp { changes: vec![db2()] }]);
        assert!(!reports(&check_runs(&[("web1", looked_up())]), "web1: run"));
        let mut checker = check_runs(&[]);
        checker.has_settled();
        checker.read(&[muster_etcd_rig::RevisionChanges {
            revision: 9,
            changes: vec![observed("web1", 1, 1, looked_up())],
        }]);
        assert!(
            reports(&checker, "web1: run r1 has the invalid cause active_roles::db changed: db2 added"),
            "{checker:?}"
        );
    }

    #[test]
    fn reports_match_the_journal() {
        let both = [("web1", configured("r1", "v1")), ("web1", validated("r1", "v1"))];
        let mut right = check_runs(&both);
        right.executed(&[executed("r1")]);
        assert!(!reports(&right, "run r1"), "{right:?}");

        let mut invented = check_runs(&both);
        invented.executed(&[]);
        assert!(reports(&invented, "run r1 was reported, but its applier never ran"), "{invented:?}");

        let mut untold = check_runs(&both);
        untold.executed(&[executed("r1"), executed("r2"), executed("r1")]);
        assert!(reports(&untold, "the applier ran for run r2, which was never reported"), "{untold:?}");
        assert!(reports(&untold, "the applier ran twice for run r1"), "{untold:?}");
    }

    #[test]
    fn acknowledged_version_must_be_stored() {
        let mut checker = check_runs(&[]);
        checker.triggered(2, "v1");
        assert_eq!(checker.violations(), [] as [&str; 0]);
        checker.triggered(2, "v2");
        assert!(reports(&checker, "version v2 was acknowledged at revision 2"), "{checker:?}");
    }
}
