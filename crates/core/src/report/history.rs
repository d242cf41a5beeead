//! History of a node: one key for each run, `history/<node>/<run>`, written once when the run is over.
//!
//! A run has two reports. Between them it is open: `observed/<node>` has it, and the history does not. The report that ends
//! a run writes its key, and deletes the key of the oldest run in the same transaction. A run without a second report, for
//! example because a newer desired state superseded it, ends with the first report of a later run.
//!
//! A view keeps only the keys ([`NodeHistory`]); the values are read from the store.
//!
//! Earlier versions wrote all runs of a node into one value, `history/<node>`. The next report of the node moves them to keys
//! of their own. Until then readers read both.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;

use crate::keys::{self, Key, Keys};
use crate::names::{NodeName, RunId};
use crate::report::record::{ObservedRecord, OpenRun, PastRun, RunList};
use crate::report::{Outcome, Report, RunResult, summary};
use crate::txn::{Op, Revision};

/// Number of runs in the history of a node.
pub const HISTORY_LENGTH: usize = 20;

/// Key of a run in the history. Ordered by age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunKey {
    /// Revision of the key: the order in which the runs were reported, whatever the clock of the node. Keys that were written
    /// together, by a restore or from the list of an earlier version, are in the order of their ends.
    pub at: Revision,
    pub ended: Timestamp,
    pub run: RunId,
}

/// The field of a run that a view keeps.
#[derive(Deserialize)]
struct RunEnd {
    ended: Timestamp,
}

/// Keys in the history of a node. Copies share them, because each report in flight has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHistory {
    /// The oldest first.
    keys: Arc<Vec<RunKey>>,
    /// `history/<node>` of an earlier version, as stored.
    list: Option<Arc<[u8]>>,
}

impl NodeHistory {
    /// Keys of the runs, the oldest first.
    pub fn keys(&self) -> &[RunKey] {
        &self.keys
    }

    pub fn contains(&self, run: &RunId) -> bool {
        self.keys.iter().any(|key| key.run == *run)
    }

    /// Runs in the value of an earlier version, the newest first. Empty if it cannot be read.
    pub fn listed(&self) -> RunList {
        self.list.as_ref().and_then(|list| serde_json::from_slice(list).ok()).unwrap_or_default()
    }

    pub fn set_list(&mut self, value: Option<&[u8]>) {
        self.list = value.map(Arc::from);
    }

    /// Sets or removes the key of a run.
    pub fn set_run(&mut self, run: &RunId, value: Option<&[u8]>, at: Revision) -> Result<(), serde_json::Error> {
        self.remove(run);
        let end: Option<RunEnd> = value.map(serde_json::from_slice).transpose()?;
        if let Some(RunEnd { ended }) = end {
            self.insert(RunKey { at, ended, run: run.clone() });
        }
        Ok(())
    }

    /// The history in the store: the keys under [`Keys::past_runs`], and the value of [`Keys::run_list`].
    pub fn from_store<'a>(
        keys: impl IntoIterator<Item = (&'a str, &'a [u8], Revision)>,
        list: Option<&[u8]>,
    ) -> Result<Self, serde_json::Error> {
        let mut history = Self::default();
        history.set_list(list);
        for (key, value, at) in keys {
            if let Some((_, Key::PastRun { run, .. })) = keys::parse(key) {
                history.set_run(&run, Some(value), at)?;
            }
        }
        Ok(history)
    }

    fn insert(&mut self, key: RunKey) {
        let keys = Arc::make_mut(&mut self.keys);
        keys.insert(keys.partition_point(|other| *other < key), key);
    }

    fn remove(&mut self, run: &RunId) {
        if let Some(at) = self.keys.iter().position(|key| key.run == *run) {
            Arc::make_mut(&mut self.keys).remove(at);
        }
    }

    /// The history after a report that was committed at this revision.
    pub fn committed(mut self, update: HistoryUpdate, at: Revision) -> Self {
        if update.moves_list {
            self.list = None;
        }
        update.deleted.iter().for_each(|run| self.remove(run));
        for (run, ended) in update.written {
            self.remove(&run);
            self.insert(RunKey { at, ended, run });
        }
        self
    }
}

/// Keys that a report writes and deletes in the history of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryUpdate {
    pub(super) written: Vec<(RunId, Timestamp)>,
    pub(super) deleted: Vec<RunId>,
    /// The value of an earlier version is divided into keys, and deleted.
    pub(super) moves_list: bool,
}

/// A report, with what is known of the node's runs before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryInput<'a> {
    pub(super) keys: &'a Keys,
    pub(super) node: &'a NodeName,
    pub(super) history: &'a NodeHistory,
    pub(super) before: &'a ObservedRecord,
    pub(super) report: &'a Report,
    /// Place of the report in the blobs.
    pub(super) log: Option<&'a str>,
}

/// Returns whether a report leaves its run open: its validation follows.
fn leaves_open(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) => true,
        Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Validated(_) | Outcome::Previewed(_) => {
            false
        }
    }
}

impl HistoryInput<'_> {
    /// The open run after the report.
    pub(super) fn next_open(&self) -> Option<OpenRun> {
        let Self { before, report, .. } = self;
        match report.outcome {
            outcome if leaves_open(outcome) => {
                let same = before.open_run().filter(|open| open.run == report.run);
                let repaired = summary::repaired(report, same.as_ref());
                Some(OpenRun {
                    run: report.run.clone(),
                    repaired,
                    logs: same.map(|open| open.logs).unwrap_or_default(),
                })
            }
            // A preview runs beside the others.
            Outcome::Previewed(_) => before.open.clone().filter(|open| open.run != report.run),
            Outcome::Configured(_) | Outcome::Validated(_) => None,
        }
    }

    /// Adds the operations of the report to a transaction. The oldest runs are deleted, except the `kept` one.
    pub(super) fn write(&self, kept: Option<&RunId>, ops: &mut Vec<Op>) -> Result<HistoryUpdate, serde_json::Error> {
        let Self { keys, node, history, before, report, log } = self;
        let mut update = HistoryUpdate { moves_list: history.list.is_some(), ..HistoryUpdate::default() };
        let mut ended = Vec::new();
        let mut open = before.open_run();
        let mut listed = history.listed().0;
        if update.moves_list {
            ops.push(Op::delete(keys.run_list(node)));
            listed.retain(|past| !history.contains(&past.run));
        }
        if !leaves_open(report.outcome) {
            // An earlier version has written the first report of the run to the list.
            let listed = listed.iter().position(|past| past.run == report.run).map(|at| listed.remove(at));
            let first = open.take_if(|open| open.run == report.run).or(listed);
            ended.push(summary::past_run(report, *log, first));
        }
        let is_over = |open: &PastRun| open.run != report.run && !matches!(report.outcome, Outcome::Previewed(_));
        ended.extend(open.filter(is_over));
        ended.extend(listed);
        self.bound(kept, &mut ended, &mut update);
        for run in &update.deleted {
            ops.push(Op::delete(keys.past_run(node, run)));
        }
        for past in &ended {
            ops.push(Op::put_json(keys.past_run(node, &past.run), past)?);
        }
        update.written = ended.into_iter().map(|past| (past.run, past.ended)).collect();
        Ok(update)
    }

    /// Chooses the runs that are deleted, or not written at all, so that [`HISTORY_LENGTH`] are left.
    fn bound(&self, kept: Option<&RunId>, ended: &mut Vec<PastRun>, update: &mut HistoryUpdate) {
        let is_rewritten = |key: &&RunKey| ended.iter().any(|past| past.run == key.run);
        let stored: Vec<&RunKey> = self.history.keys.iter().filter(|key| !is_rewritten(key)).collect();
        let mut excess = (stored.len() + ended.len()).saturating_sub(HISTORY_LENGTH);
        for key in stored.into_iter().filter(|key| Some(&key.run) != kept).take(excess) {
            update.deleted.push(key.run.clone());
        }
        excess -= update.deleted.len();
        // Those of a list are the last ones, the oldest at the end.
        while excess > 0
            && let Some(at) = ended.iter().rposition(|past| Some(&past.run) != kept)
        {
            ended.remove(at);
            excess -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::EnvName;
    use crate::report::Verdict;
    use crate::report::record::LastRun;

    const CHANGED: Outcome = Outcome::Configured(RunResult::Changed);
    const FAILED: Outcome = Outcome::Configured(RunResult::Failed);
    const PASSED: Outcome = Outcome::Validated(Verdict::Passed);
    const PREVIEWED: Outcome = Outcome::Previewed(RunResult::Changed);

    fn run(number: u64) -> RunId {
        RunId::new(format!("r{number}")).unwrap()
    }

    fn report(number: u64, outcome: Outcome) -> Report {
        let ended = Timestamp::from_second(1_800_000_000 + number as i64).unwrap();
        let report = serde_json::json!({"node": "web1", "incarnation": 1, "seq": 1, "run": run(number),
            "phase": "validated", "result": "passed", "version": "v1", "digest": "", "causes": [],
            "generation": {"epoch": 1, "number": 1}, "facts": {"interfaces": {}}, "started": ended, "ended": ended});
        Report { outcome, ..serde_json::from_value(report).unwrap() }
    }

    fn past(number: u64, logs: &[&str]) -> PastRun {
        let logs = logs.iter().map(|log| (*log).to_owned()).collect();
        PastRun { logs, ..summary::past_run(&report(number, PASSED), None, None) }
    }

    /// A node whose reports are committed one by one.
    #[derive(Default)]
    struct Reporting {
        observed: ObservedRecord,
        history: NodeHistory,
        revision: u64,
        /// Values in the history, as stored.
        stored: std::collections::BTreeMap<String, Vec<u8>>,
    }

    impl Reporting {
        /// Applies a report with a log of its own. Returns the number of operations.
        fn apply(&mut self, report: &Report, kept: Option<&RunId>) -> usize {
            let (keys, node) = (Keys::new(&EnvName::new("test").unwrap()), NodeName::new("web1").unwrap());
            let log = format!("log {} {}", report.run, report.outcome.phase());
            let Self { observed: before, history, .. } = &*self;
            let input = HistoryInput { keys: &keys, node: &node, history, before, report, log: Some(&log) };
            let (mut ops, open) = (Vec::new(), input.next_open());
            let update = input.write(kept, &mut ops).unwrap();
            self.revision += 1;
            self.history = std::mem::take(&mut self.history).committed(update, Revision(self.revision));
            if !matches!(report.outcome, Outcome::Previewed(_)) {
                self.observed.last = Some(summary::last_run(report, Some(&log)));
            }
            self.observed.open = open;
            for op in &ops {
                let key = op.key().strip_prefix("/muster/test/history/").unwrap().to_owned();
                match op {
                    Op::Put { value, .. } => _ = self.stored.insert(key, value.clone()),
                    Op::Delete { .. } => assert!(self.stored.remove(&key).is_some(), "{key} does not exist"),
                }
            }
            let known: Vec<String> = self.history.keys().iter().map(|key| format!("web1/{}", key.run)).collect();
            let mut sorted = known.clone();
            sorted.sort();
            assert_eq!(sorted, self.stored.keys().cloned().collect::<Vec<_>>());
            ops.len()
        }

        fn past(&self, number: u64) -> PastRun {
            serde_json::from_slice(&self.stored[&format!("web1/r{number}")]).unwrap()
        }

        fn runs(&self) -> Vec<&str> {
            self.history.keys().iter().map(|key| key.run.as_str()).collect()
        }
    }

    #[test]
    fn run_is_written_once_when_it_is_over() {
        let mut node = Reporting::default();
        assert_eq!(node.apply(&report(1, CHANGED), None), 0, "it is open");
        let open = node.observed.open_run().unwrap();
        assert_eq!((open.run, open.outcome, open.logs), (run(1), CHANGED, vec!["log r1 configured".to_owned()]));
        assert_eq!(node.apply(&report(1, PASSED), None), 1);
        assert_eq!(node.observed.open, None);
        let past = node.past(1);
        assert_eq!((past.outcome, past.checks), (PASSED, Some(0)));
        assert_eq!(past.logs, ["log r1 configured", "log r1 validated"]);
        assert_eq!(node.apply(&report(2, FAILED), None), 1, "no validation follows");
        assert_eq!(node.runs(), ["r1", "r2"]);
    }

    #[test]
    fn superseded_run_ends_with_the_next_one() {
        let mut node = Reporting::default();
        node.apply(&report(1, CHANGED), None);
        assert_eq!(node.apply(&report(2, PREVIEWED), None), 1, "a preview does not end it");
        assert_eq!((node.runs(), node.observed.open_run().unwrap().run), (vec!["r2"], run(1)));
        assert_eq!(node.apply(&report(3, CHANGED), None), 1);
        assert_eq!((node.runs(), node.observed.open_run().unwrap().run), (vec!["r2", "r1"], run(3)));
        assert_eq!(node.past(1).outcome, CHANGED);
        assert_eq!(node.apply(&report(4, FAILED), None), 2, "both are over");
        assert_eq!(node.runs(), ["r2", "r1", "r3", "r4"]);
    }

    #[test]
    fn repeated_report_of_a_run_keeps_all_logs() {
        let mut node = Reporting::default();
        node.apply(&report(1, CHANGED), None);
        node.apply(&report(1, CHANGED), None);
        node.apply(&report(1, PASSED), None);
        assert_eq!(node.past(1).logs, ["log r1 configured", "log r1 configured", "log r1 validated"]);
    }

    #[test]
    fn oldest_run_is_deleted_in_the_same_transaction() {
        let mut node = Reporting::default();
        let length = HISTORY_LENGTH as u64;
        for number in 1..=length {
            assert_eq!(node.apply(&report(number, PASSED), Some(&run(2))), 1);
        }
        assert_eq!(node.apply(&report(length + 1, PASSED), Some(&run(2))), 2);
        assert!(!node.history.contains(&run(1)));
        node.apply(&report(length + 2, PASSED), Some(&run(2)));
        assert!(node.history.contains(&run(2)) && !node.history.contains(&run(3)), "the kept run stays");
        assert_eq!(node.history.keys().len(), HISTORY_LENGTH);
        node.apply(&report(length + 3, PASSED), None);
        assert!(!node.history.contains(&run(2)));
    }

    #[test]
    fn list_of_an_earlier_version_is_moved_to_keys() {
        let mut node = Reporting::default();
        // The newest first. The first report of r22 was written by the earlier version.
        let list: Vec<PastRun> = (3..=22).rev().map(|number| past(number, &["a log"])).collect();
        let text = serde_json::to_vec(&RunList(list)).unwrap();
        node.history.set_list(Some(&text));
        node.stored.insert("web1".to_owned(), text);
        assert_eq!(node.history.listed().0.len(), 20);

        assert_eq!(node.apply(&report(22, PASSED), None), 21);
        assert_eq!((node.history.listed().0, node.stored.contains_key("web1")), (Vec::new(), false));
        assert_eq!(node.past(22).logs, ["a log", "log r22 validated"]);
        assert_eq!(
            (node.runs().len(), node.runs()[0], node.runs()[19]),
            (20, "r3", "r22"),
            "in the order of their ends"
        );
        assert_eq!(node.apply(&report(23, PASSED), None), 2);
        assert_eq!((node.runs()[0], node.runs()[19]), ("r4", "r23"));
    }

    #[test]
    fn full_list_drops_its_oldest_runs() {
        let mut node = Reporting::default();
        for number in 101..=105 {
            node.apply(&report(number, PASSED), None);
        }
        // A server of an earlier version has written it meanwhile.
        let list: Vec<PastRun> = (106..=125).rev().map(|number| past(number, &[])).collect();
        let text = serde_json::to_vec(&RunList(list)).unwrap();
        node.history.set_list(Some(&text));
        node.stored.insert("web1".to_owned(), text);
        node.apply(&report(126, CHANGED), Some(&run(101)));
        assert_eq!((node.runs().len(), node.runs()[0]), (20, "r101"));
        assert!(!node.history.contains(&run(106)) && node.history.contains(&run(107)), "{:?}", node.runs());
    }

    #[test]
    fn unreadable_list_is_deleted() {
        let mut node = Reporting::default();
        node.history.set_list(Some(b"not json"));
        node.stored.insert("web1".to_owned(), b"not json".to_vec());
        assert_eq!(node.apply(&report(1, PASSED), None), 2);
        assert_eq!(node.runs(), ["r1"]);
    }

    #[test]
    fn history_in_the_store_reads_back() {
        let mut node = Reporting::default();
        for number in 1..=3 {
            node.apply(&report(number, PASSED), None);
        }
        let keys: Vec<(String, RunKey)> = node
            .history
            .keys()
            .iter()
            .map(|key| (format!("/muster/test/history/web1/{}", key.run), key.clone()))
            .collect();
        let stored = keys
            .iter()
            .rev()
            .map(|(text, key)| (text.as_str(), &node.stored[&format!("web1/{}", key.run)][..], key.at));
        assert_eq!(NodeHistory::from_store(stored, None).unwrap(), node.history);
    }

    #[test]
    fn open_run_needs_the_last_run() {
        let mut node = Reporting::default();
        node.apply(&report(1, CHANGED), None);
        let last = node.observed.last.take();
        assert_eq!(node.observed.open_run(), None);
        node.observed.last = last.map(|last| LastRun { run: run(9), ..last });
        assert_eq!(node.observed.open_run(), None);
    }
}
