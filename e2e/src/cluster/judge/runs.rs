//! Nobody runs without a cause, and what is told of runs is what appliers did.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::keys::Key;
use muster_core::names::NodeName;
use muster_core::report::record::{LastRun, ObservedRecord};
use muster_core::report::{Cause, Outcome, Verdict};
use muster_core::rollout::record::DesiredRecord;

use super::{Complaints, Touched};

/// A run, as its applier has written it down itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Executed {
    pub node: String,
    pub run: String,
}

#[derive(Debug, Default)]
pub(super) struct Runs {
    pub(super) settled: bool,
    /// How often each agent was started.
    pub(super) starts: usize,
    /// Every choice of a version: its revision, which is the number of its generation.
    chosen: BTreeMap<i64, String>,
    /// Every grant of a rollout: the same for one node.
    granted: BTreeMap<(NodeName, i64), String>,
    nodes: BTreeMap<NodeName, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    runs: BTreeMap<String, Told>,
    /// Generations that were the cause of a run.
    answered: BTreeMap<u64, String>,
    starts: usize,
}

/// What the store was told of one run.
#[derive(Debug, Default)]
struct Told {
    configured: bool,
    passed: bool,
}

impl Runs {
    pub(super) fn read(&mut self, revision: i64, touched: &[Touched<'_>], complaints: &mut Complaints<'_>) {
        for touched in touched {
            match (&touched.key, touched.value) {
                (Key::CurrentVersion, Some(value)) => {
                    self.chosen.insert(revision, String::from_utf8_lossy(value).into_owned());
                }
                (Key::Desired { node }, Some(value)) => {
                    let grant: Option<DesiredRecord> = complaints.json(&format!("desired/{node}"), value);
                    if let Some(grant) = grant {
                        self.granted.insert((node.clone(), revision), grant.version.to_string());
                    }
                }
                (Key::Observed { node }, Some(value)) => {
                    let observed: Option<ObservedRecord> = complaints.json(&format!("observed/{node}"), value);
                    if let Some(last) = observed.and_then(|observed| observed.last) {
                        self.told(node, &last, complaints);
                    }
                }
                _ => {}
            }
        }
    }

    fn told(&mut self, node: &NodeName, last: &LastRun, complaints: &mut Complaints<'_>) {
        let seen = self.nodes.entry(node.clone()).or_default();
        let is_new = !seen.runs.contains_key(last.run.as_str());
        let told = seen.runs.entry(last.run.to_string()).or_default();
        match last.outcome {
            Outcome::Configured(_) => told.configured = true,
            Outcome::Previewed(_) => {}
            Outcome::Validated(Verdict::Passed) => told.passed = true,
            Outcome::Validated(Verdict::Failed) => {
                complaints.push(format_args!("{node}: the validation of {} has failed: {:?}", last.run, last.reason));
            }
        }
        if !is_new {
            return;
        }
        if last.causes.is_empty() {
            complaints.push(format_args!("{node} made run {} without any cause", last.run));
        }
        let number = last.generation.number;
        let chosen = i64::try_from(number).ok().and_then(|number| {
            let granted = self.granted.get(&(node.clone(), number));
            granted.or_else(|| self.chosen.get(&number))
        });
        if chosen.map(String::as_str) != Some(last.version.as_str()) {
            let (run, version) = (&last.run, &last.version);
            complaints.push(format_args!(
                "{node} made run {run} of {version} for generation {number}, at which {chosen:?} was chosen"
            ));
        }
        for cause in &last.causes {
            match cause {
                Cause::Version { .. } => {
                    if let Some(before) = seen.answered.insert(number, last.run.to_string()) {
                        let run = &last.run;
                        complaints.push(format_args!(
                            "{node} made run {run} for the version of generation {number}, as {before} before"
                        ));
                    }
                }
                Cause::AgentStarted => {
                    seen.starts += 1;
                    if seen.starts > self.starts {
                        let (run, starts) = (&last.run, self.starts);
                        complaints.push(format_args!(
                            "{node} made run {run} because its agent had started, which it did {starts} times only"
                        ));
                    }
                }
                Cause::LookedUp { .. } if !self.settled => {}
                Cause::LookedUp { .. }
                | Cause::Retry { .. }
                | Cause::Interrupted { .. }
                | Cause::Operator { .. }
                | Cause::Schedule
                | Cause::WentBack { .. } => {
                    complaints.push(format_args!("{node} made run {} because of {cause}, which was not so", last.run));
                }
            }
        }
    }

    pub(super) fn triggered(&self, revision: i64, version: &str, complaints: &mut Vec<String>) {
        match self.chosen.get(&revision).map(String::as_str) {
            Some(chosen) if chosen == version => {}
            other => complaints.push(format!(
                "the operator was told that the version is {version} since revision {revision}; there it is {other:?}"
            )),
        }
    }

    pub(super) fn compare(&self, journal: &[Executed], complaints: &mut Vec<String>) {
        let mut executed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for Executed { node, run } in journal {
            if !executed.entry(node).or_default().insert(run) {
                complaints.push(format!("{node}: the applier ran twice for run {run}"));
            }
        }
        for (node, seen) in &self.nodes {
            let executed = executed.remove(node.as_str()).unwrap_or_default();
            for (run, told) in &seen.runs {
                if !executed.contains(run.as_str()) {
                    complaints.push(format!("{node}: run {run} was reported, and its applier never ran"));
                }
                if !(told.configured && told.passed) {
                    complaints.push(format!("{node}: of run {run} only a part was reported: {told:?}"));
                }
            }
            for run in executed.iter().filter(|run| !seen.runs.contains_key(**run)) {
                complaints.push(format!("{node}: the applier ran for run {run}, of which nobody has told the store"));
            }
        }
        for (node, executed) in executed {
            complaints
                .push(format!("{node}: its applier ran {} times, and the store knows no run of it", executed.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_core::report::{Cause, LookupChange};

    use super::super::Judge;
    use super::super::testing::{caused, configured, history, observed, put, validated};
    use super::*;

    fn judge(runs: &[(&str, LastRun)]) -> Judge {
        let mut judge = Judge::default();
        judge.agents_started(1);
        // Revision 2 is the choice of v1: so that is the generation of all of them.
        let mut transactions = vec![vec![put("current_version", "v1")]];
        transactions.extend(runs.iter().zip(1..).map(|((node, last), seq)| vec![observed(node, 1, seq, last.clone())]));
        judge.read(&history(&transactions));
        judge
    }

    fn said(judge: &Judge, what: &str) -> bool {
        judge.complaints().iter().any(|told| told.contains(what))
    }

    fn executed(run: &str) -> Executed {
        Executed { node: "web1".to_owned(), run: run.to_owned() }
    }

    #[test]
    fn one_run_for_each_choice_of_a_version_is_right_and_a_second_one_is_not() {
        let (first, second) = (configured("r1", "v1"), configured("r2", "v1"));
        assert!(!said(&judge(&[("web1", first.clone())]), "made run"));
        let judge = judge(&[("web1", first), ("web1", second)]);
        assert!(said(&judge, "web1 made run r2 for the version of generation 2, as r1 before"), "{judge:?}");
    }

    #[test]
    fn a_run_without_a_cause_or_with_one_that_was_not_so_is_wrong() {
        let judge = judge(&[
            ("web1", caused("r1", vec![])),
            ("web2", caused("r2", vec![Cause::Retry { attempt: 1 }])),
            ("web3", caused("r3", vec![Cause::AgentStarted])),
            ("web3", caused("r4", vec![Cause::AgentStarted])),
        ]);
        assert!(said(&judge, "web1 made run r1 without any cause"), "{judge:?}");
        assert!(said(&judge, "web2 made run r2 because of retry 1"), "{judge:?}");
        assert!(!said(&judge, "made run r3"), "{judge:?}");
        assert!(said(&judge, "web3 made run r4 because its agent had started, which it did 1 times only"), "{judge:?}");
    }

    #[test]
    fn a_change_of_what_was_looked_up_is_a_cause_only_as_long_as_something_changes() {
        let db2 = || LookupChange { key: "active_roles::db".to_owned(), what: "db2 added".to_owned() };
        let looked_up = || caused("r1", vec![Cause::LookedUp { changes: vec![db2()] }]);
        assert!(!said(&judge(&[("web1", looked_up())]), "made run"));
        let mut judge = judge(&[]);
        judge.has_settled();
        judge.read(&[muster_etcd_rig::RevisionChanges { revision: 9, changes: vec![observed("web1", 1, 1, looked_up())] }]);
        assert!(
            said(&judge, "web1 made run r1 because of active_roles::db changed: db2 added, which was not so"),
            "{judge:?}"
        );
    }

    #[test]
    fn what_is_told_is_what_appliers_did() {
        let both = [("web1", configured("r1", "v1")), ("web1", validated("r1", "v1"))];
        let mut right = judge(&both);
        right.executed(&[executed("r1")]);
        assert!(!said(&right, "run r1"), "{right:?}");

        let mut invented = judge(&both);
        invented.executed(&[]);
        assert!(said(&invented, "run r1 was reported, and its applier never ran"), "{invented:?}");

        let mut untold = judge(&both);
        untold.executed(&[executed("r1"), executed("r2"), executed("r1")]);
        assert!(said(&untold, "the applier ran for run r2, of which nobody has told the store"), "{untold:?}");
        assert!(said(&untold, "the applier ran twice for run r1"), "{untold:?}");
    }

    #[test]
    fn a_version_that_the_operator_was_told_of_is_there() {
        let mut judge = judge(&[]);
        judge.triggered(2, "v1");
        assert_eq!(judge.complaints(), [] as [&str; 0]);
        judge.triggered(2, "v2");
        assert!(said(&judge, "told that the version is v2 since revision 2"), "{judge:?}");
    }
}
