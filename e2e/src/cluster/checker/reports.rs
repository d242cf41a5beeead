//! Rules of reports: each is applied once and in order, and no acknowledged report is lost.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::keys::Key;
use muster_core::names::NodeName;
use muster_core::report::Outcome;
use muster_core::report::record::ObservedRecord;

use super::{ChangedKey, Violations};

/// A report that was acknowledged to its agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AcknowledgedReport {
    pub node: String,
    pub seq: u64,
    pub run: String,
}

#[derive(Debug, Default)]
pub(super) struct ReportRules {
    nodes: BTreeMap<NodeName, SeenReports>,
}

#[derive(Debug, Default)]
struct SeenReports {
    incarnation: u64,
    seq: u64,
    /// Run and outcome of the last report.
    last: Option<(String, Outcome)>,
    boot: Option<String>,
    /// Applied reports: sequence number and run.
    applied: BTreeMap<u64, String>,
    /// Acknowledged reports.
    acknowledged: BTreeSet<u64>,
}

impl ReportRules {
    pub(super) fn read(&mut self, changed: &[ChangedKey<'_>], violations: &mut Violations<'_>) {
        for one in changed {
            let Key::Observed { node } = &one.key else { continue };
            let Some(value) = one.value else {
                violations.push(format_args!("the reports of {node} were deleted"));
                continue;
            };
            let ends_run =
                changed.iter().any(|other| matches!(&other.key, Key::PastRun { node: of, .. } if of == node));
            if let Some(observed) = violations.json(&format!("observed/{node}"), value) {
                self.nodes.entry(node.clone()).or_default().follow(node, &observed, ends_run, violations);
            }
        }
    }

    pub(super) fn compare(&mut self, found: &[AcknowledgedReport], violations: &mut Vec<String>) {
        for AcknowledgedReport { node, seq, run } in found {
            let mut seen = NodeName::new(node.clone()).ok().and_then(|node| self.nodes.get_mut(&node));
            if let Some(seen) = &mut seen {
                seen.acknowledged.insert(*seq);
            }
            match seen.and_then(|seen| seen.applied.get(seq)) {
                Some(applied) if applied == run => {}
                Some(other) => violations.push(format!(
                    "{node}: report {seq} of run {run} was acknowledged, but this number belongs to run {other}"
                )),
                None => violations.push(format!("{node}: report {seq} of run {run} was acknowledged and is lost")),
            }
        }
    }

    /// On an idle fleet every report is acknowledged.
    pub(super) fn all_acknowledged(&self, violations: &mut Vec<String>) {
        for (node, seen) in &self.nodes {
            for (seq, run) in seen.applied.iter().filter(|(seq, _)| !seen.acknowledged.contains(seq)) {
                violations.push(format!("{node}: report {seq} of run {run} was applied and never acknowledged"));
            }
        }
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.values().map(|seen| seen.applied.len()).sum()
    }
}

impl SeenReports {
    fn follow(&mut self, node: &NodeName, observed: &ObservedRecord, ends_run: bool, violations: &mut Violations<'_>) {
        let (before, after) = ((self.incarnation, self.seq), (observed.incarnation, observed.seq));
        // A hello writes the record too: with another incarnation, or another boot of the machine.
        let is_hello = !ends_run
            && observed.seq == self.seq
            && (observed.incarnation, &observed.boot) != (self.incarnation, &self.boot);
        let last = observed.last.as_ref().map(|last| (last.run.to_string(), last.outcome));
        if after < before {
            violations.push(format_args!("the reports of {node} are out of order: from {before:?} to {after:?}"));
        }
        if after == before && (!is_hello || last != self.last) {
            violations.push(format_args!("{node}: report {after:?} was applied twice, as {last:?}"));
        }
        // Sequence numbers grow through all incarnations.
        if !is_hello && after != before {
            let run = last.as_ref().map(|(run, _)| run.clone()).unwrap_or_default();
            if let Some((highest, of)) = self.applied.last_key_value().filter(|(highest, _)| after.1 <= **highest) {
                violations.push(format_args!(
                    "{node}: report {} of run {run} was applied after report {highest} of run {of}",
                    after.1
                ));
            }
            self.applied.insert(after.1, run);
        }
        (self.incarnation, self.seq, self.last) = (after.0, after.1, last);
        self.boot.clone_from(&observed.boot);
    }
}

#[cfg(test)]
mod tests {
    use super::super::HistoryChecker;
    use muster_etcd_rig::RawChange;

    use super::super::testing::{configured, history, observed, put, validated, violations};
    use super::*;

    fn report(incarnation: u64, seq: u64, run: &str) -> Vec<RawChange> {
        vec![observed("web1", incarnation, seq, configured(run, "v1")), put(&format!("history/web1/{run}"), "{}")]
    }

    /// Only violations about reports: the status leaves are missing in these histories.
    fn about_reports(reports: &[Vec<RawChange>]) -> Vec<String> {
        violations(reports)
            .into_iter()
            .filter(|found| found.contains("report") && !found.contains("last report"))
            .collect()
    }

    #[test]
    fn reports_in_order_are_accepted() {
        let found = about_reports(&[report(1, 1, "r1"), report(1, 2, "r1"), report(2, 3, "r2")]);
        assert_eq!(found, [] as [&str; 0]);
    }

    #[test]
    fn applied_older_report_is_a_violation() {
        let found = about_reports(&[report(1, 2, "r1"), report(1, 1, "r1")]);
        assert!(
            found[0].contains("revision 3: the reports of web1 are out of order: from (1, 2) to (1, 1)"),
            "{found:?}"
        );
    }

    #[test]
    fn report_applied_twice_is_a_violation() {
        for again in [report(1, 1, "r1"), vec![observed("web1", 1, 1, validated("r9", "v1"))]] {
            let found = about_reports(&[report(1, 1, "r1"), again]);
            assert!(found[0].contains("report (1, 1) was applied twice"), "{found:?}");
        }
        // A restarted machine writes its hello into the same record.
        let mut hello = observed("web1", 1, 1, configured("r1", "v1"));
        if let RawChange::Put { value, .. } = &mut hello {
            *value = [br#"{"boot":"second","#, &value[1..]].concat();
        }
        assert_eq!(about_reports(&[report(1, 1, "r1"), vec![hello]]), [] as [&str; 0]);

        let found = about_reports(&[report(1, 1, "r1"), report(2, 1, "r1")]);
        assert!(found[0].contains("report 1 of run r1 was applied after report 1"), "{found:?}");
    }

    #[test]
    fn missing_acknowledged_report_is_a_violation() {
        let mut checker = HistoryChecker::default();
        checker.read(&history(&[report(1, 1, "r1")]));
        let acknowledged = |seq, run: &str| AcknowledgedReport { node: "web1".to_owned(), seq, run: run.to_owned() };
        let before = checker.violations().len();
        checker.acknowledged(&[acknowledged(1, "r1")]);
        assert_eq!(checker.violations().len(), before);
        checker.acknowledged(&[acknowledged(2, "r1"), acknowledged(1, "r7")]);
        let found = &checker.violations()[before..];
        assert!(found[0].contains("report 2 of run r1 was acknowledged and is lost"), "{found:?}");
        assert!(found[1].contains("this number belongs to run r1"), "{found:?}");
    }

    #[test]
    fn unacknowledged_report_is_a_violation() {
        let mut checker = HistoryChecker::default();
        checker.read(&history(&[report(1, 1, "r1")]));
        let before = checker.violations().len();
        checker.all_acknowledged();
        let found = &checker.violations()[before..];
        assert!(found[0].contains("report 1 of run r1 was applied and never acknowledged"), "{found:?}");
    }
}
