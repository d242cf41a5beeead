//! Every report is applied once, in order, and none that was acknowledged is missing.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::keys::Key;
use muster_core::names::NodeName;
use muster_core::report::Outcome;
use muster_core::report::record::ObservedRecord;

use super::{Complaints, Touched};

/// A report that an agent was told to be taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Acknowledged {
    pub node: String,
    pub seq: u64,
    pub run: String,
}

#[derive(Debug, Default)]
pub(super) struct Reports {
    nodes: BTreeMap<NodeName, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    incarnation: u64,
    seq: u64,
    /// The last report: its run, and what it said of it.
    last: Option<(String, Outcome)>,
    /// Every report that was applied: its number, and its run.
    applied: BTreeMap<u64, String>,
    /// Those that the agent was told to be taken.
    acknowledged: BTreeSet<u64>,
}

impl Reports {
    pub(super) fn read(&mut self, touched: &[Touched<'_>], complaints: &mut Complaints<'_>) {
        for one in touched {
            let Key::Observed { node } = &one.key else { continue };
            let Some(value) = one.value else {
                complaints.push(format_args!("the reports of {node} are forgotten"));
                continue;
            };
            // A hello writes `observed` too; only a report writes the history.
            let is_report = touched.iter().any(|other| matches!(&other.key, Key::History { node: of } if of == node));
            if let Some(observed) = complaints.json(&format!("observed/{node}"), value) {
                self.nodes.entry(node.clone()).or_default().follow(node, &observed, is_report, complaints);
            }
        }
    }

    pub(super) fn compare(&mut self, told: &[Acknowledged], complaints: &mut Vec<String>) {
        for Acknowledged { node, seq, run } in told {
            let mut seen = NodeName::new(node.clone()).ok().and_then(|node| self.nodes.get_mut(&node));
            if let Some(seen) = &mut seen {
                seen.acknowledged.insert(*seq);
            }
            match seen.and_then(|seen| seen.applied.get(seq)) {
                Some(applied) if applied == run => {}
                Some(other) => complaints.push(format!(
                    "{node}: report {seq} of run {run} was acknowledged, and under that number there is run {other}"
                )),
                None => complaints.push(format!(
                    "{node}: report {seq} of run {run} was acknowledged and is in no revision of the store: it is lost"
                )),
            }
        }
    }

    /// At rest no agent has anything left to send: so it was told of all of them.
    pub(super) fn all_acknowledged(&self, complaints: &mut Vec<String>) {
        for (node, seen) in &self.nodes {
            for (seq, run) in seen.applied.iter().filter(|(seq, _)| !seen.acknowledged.contains(seq)) {
                complaints.push(format!("{node}: report {seq} of run {run} was applied, and its agent never told"));
            }
        }
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.values().map(|seen| seen.applied.len()).sum()
    }
}

impl Seen {
    fn follow(&mut self, node: &NodeName, observed: &ObservedRecord, is_report: bool, complaints: &mut Complaints<'_>) {
        let (before, after) = ((self.incarnation, self.seq), (observed.incarnation, observed.seq));
        let last = observed.last.as_ref().map(|last| (last.run.to_string(), last.outcome));
        if after < before {
            complaints.push(format_args!("the reports of {node} go back from {before:?} to {after:?}"));
        }
        if after == before && (is_report || last != self.last) {
            complaints.push(format_args!("{node}: report {after:?} is applied a second time, as {last:?}"));
        }
        // Numbers grow through all incarnations.
        if is_report && after != before {
            let run = last.as_ref().map(|(run, _)| run.clone()).unwrap_or_default();
            if let Some((highest, of)) = self.applied.last_key_value().filter(|(highest, _)| after.1 <= **highest) {
                complaints.push(format_args!(
                    "{node}: report {} of run {run} is applied after report {highest} of run {of}",
                    after.1
                ));
            }
            self.applied.insert(after.1, run);
        }
        (self.incarnation, self.seq, self.last) = (after.0, after.1, last);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Judge;
    use super::super::testing::{complaints, configured, history, observed, put, validated};
    use super::*;

    fn report(incarnation: u64, seq: u64, run: &str) -> Vec<muster_etcd_rig::RawChange> {
        vec![observed("web1", incarnation, seq, configured(run, "v1")), put("history/web1", "[]")]
    }

    /// Only what is said of reports; the status leaves are missing here, and the states say so.
    fn about_reports(reports: &[Vec<muster_etcd_rig::RawChange>]) -> Vec<String> {
        complaints(reports)
            .into_iter()
            .filter(|told| told.contains("report") && !told.contains("last report"))
            .collect()
    }

    #[test]
    fn reports_in_order_are_right() {
        let told = about_reports(&[report(1, 1, "r1"), report(1, 2, "r1"), report(2, 3, "r2")]);
        assert_eq!(told, [] as [&str; 0]);
    }

    #[test]
    fn an_older_report_that_is_applied_is_wrong() {
        let told = about_reports(&[report(1, 2, "r1"), report(1, 1, "r1")]);
        assert!(told[0].contains("revision 3: the reports of web1 go back from (1, 2) to (1, 1)"), "{told:?}");
    }

    #[test]
    fn a_report_that_is_applied_twice_is_wrong_also_under_another_incarnation() {
        for again in [report(1, 1, "r1"), vec![observed("web1", 1, 1, validated("r9", "v1"))]] {
            let told = about_reports(&[report(1, 1, "r1"), again]);
            assert!(told[0].contains("report (1, 1) is applied a second time"), "{told:?}");
        }
        // A machine that was started again says so in the same record.
        let hello = vec![observed("web1", 1, 1, configured("r1", "v1"))];
        assert_eq!(about_reports(&[report(1, 1, "r1"), hello]), [] as [&str; 0]);

        let told = about_reports(&[report(1, 1, "r1"), report(2, 1, "r1")]);
        assert!(told[0].contains("report 1 of run r1 is applied after report 1"), "{told:?}");
    }

    #[test]
    fn an_acknowledged_report_that_is_not_there_is_lost() {
        let mut judge = Judge::default();
        judge.read(&history(&[report(1, 1, "r1")]));
        let acknowledged = |seq, run: &str| Acknowledged { node: "web1".to_owned(), seq, run: run.to_owned() };
        let before = judge.complaints().len();
        judge.acknowledged(&[acknowledged(1, "r1")]);
        assert_eq!(judge.complaints().len(), before);
        judge.acknowledged(&[acknowledged(2, "r1"), acknowledged(1, "r7")]);
        let told = &judge.complaints()[before..];
        assert!(told[0].contains("report 2 of run r1 was acknowledged and is in no revision"), "{told:?}");
        assert!(told[1].contains("under that number there is run r1"), "{told:?}");
    }

    #[test]
    fn a_report_of_which_nobody_told_its_agent_is_noticed() {
        let mut judge = Judge::default();
        judge.read(&history(&[report(1, 1, "r1")]));
        let before = judge.complaints().len();
        judge.all_acknowledged();
        let told = &judge.complaints()[before..];
        assert!(told[0].contains("report 1 of run r1 was applied, and its agent never told"), "{told:?}");
    }
}
