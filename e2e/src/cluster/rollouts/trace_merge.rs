//! Merges the history of etcd and the journal in order of time, and feeds them to the simulator's checker.
//!
//! All processes run on one machine with one clock. A transaction happened at the latest time in its values, or shortly
//! after; journal entries before that time came before it. Transactions are ordered by revision.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::keys::{self, Key};
use muster_core::names::{EnvName, NodeName, ReplicaId, RunId};
use muster_core::replica::{ControllerName, ControllerRecord};
use muster_core::report::RunResult;
use muster_core::report::record::ObservedRecord;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::{DesiredRecord, GateVerdict, PauseReason, RolloutPhase, RolloutRecord};
use muster_core::txn::Revision as At;
use muster_etcd_rig::{RawChange, RevisionChanges};
use muster_sim::simulation::{TraceChecker, TraceRun, TraceWriter};
use muster_store::{KeyValue, WatchChange};

use super::fleet::{JournalEntry, JournalEvent, OfRun};
use crate::server::ENV;

/// Difference between the end of a check in the journal and in the report.
const SLACK: Duration = Duration::from_millis(20);

/// Everything that was observed.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    pub history: &'a [RevisionChanges],
    pub journal: &'a [JournalEntry],
    /// Plans of all rollouts in the history, except those at once.
    pub plans: &'a BTreeMap<RolloutId, (String, RolloutPlan)>,
    /// Replicas that were killed or stopped, with the time.
    pub went: &'a [(ReplicaId, Timestamp)],
    /// Grants according to the servers' logs.
    pub granted: &'a GrantedNode,
}

/// The server that logged each grant, by rollout and node, and the replica ids of each server.
#[derive(Clone, Debug, Default)]
pub struct GrantedNode {
    pub by: BTreeMap<(String, String), usize>,
    pub names: BTreeMap<ReplicaId, usize>,
}

/// Number of observations. Without any, the checker proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservationCounts {
    pub transactions: usize,
    pub grants: usize,
    pub runs: usize,
    pub gates: usize,
    pub commands: usize,
}

/// Author of rollouts that Muster starts by itself.
const MUSTER: &str = "muster";

/// Result of the check.
#[derive(Debug)]
pub struct TraceResult {
    pub trial: TraceChecker,
    pub counts: ObservationCounts,
    /// Revisions of operator commands.
    pub commands: Vec<i64>,
}

/// Feeds everything to the checker.
pub fn check(evidence: &Evidence<'_>) -> TraceResult {
    let mut merge = TraceMerge::new(evidence);
    for revision in evidence.history {
        merge.transaction(revision);
    }
    merge.feed_journal_until(Timestamp::MAX);
    let TraceMerge { trial, counts, commands, .. } = merge;
    TraceResult { trial, counts, commands }
}

struct TraceMerge<'a> {
    evidence: &'a Evidence<'a>,
    trial: TraceChecker,
    counts: ObservationCounts,
    runs: BTreeMap<RunId, TraceRun>,
    /// Latest records.
    records: BTreeMap<RolloutId, RolloutRecord>,
    /// Revisions of operator commands.
    commands: Vec<i64>,
    holder: Option<ReplicaId>,
    begin: Timestamp,
    now: Timestamp,
    journal: usize,
    went: usize,
}

impl<'a> TraceMerge<'a> {
    fn new(evidence: &'a Evidence<'a>) -> Self {
        let mut trial = TraceChecker::new(EnvName::new(ENV).unwrap(), SLACK);
        for (digest, plan) in evidence.plans.values() {
            trial.plan(digest.clone(), plan.clone());
        }
        let begin = evidence.journal.first().map(|entry| entry.at).unwrap();
        Self {
            evidence,
            trial,
            counts: ObservationCounts::default(),
            runs: runs(evidence.history),
            records: BTreeMap::new(),
            commands: Vec::new(),
            holder: None,
            begin,
            now: Timestamp::MIN,
            journal: 0,
            went: 0,
        }
    }

    fn moment(&self, at: Timestamp) -> Duration {
        Duration::try_from(at.duration_since(self.begin)).unwrap_or_default()
    }

    fn transaction(&mut self, revision: &RevisionChanges) {
        let changed: Vec<(Key, Option<&[u8]>)> = revision.changes.iter().filter_map(changed).collect();
        let at = written(&changed);
        self.now = self.now.max(at.unwrap_or(self.now));
        self.feed_journal_until(self.now);
        self.lease_ended(&changed);
        let author = self.author(&changed);
        if author == TraceWriter::Operator {
            self.counts.commands += 1;
            self.commands.push(revision.revision);
        }
        let number = At(u64::try_from(revision.revision).unwrap());
        let changes: Vec<WatchChange> = revision.changes.iter().map(|change| watch_change(change, number)).collect();
        self.trial.committed(self.moment(at.unwrap_or(self.now)), number, &changes, author);
        self.counts.transactions += 1;
        self.counts.grants += changed.iter().filter(|(key, _)| matches!(key, Key::Desired { .. })).count();
        self.records.extend(records(&changed).map(|record| (record.id, record)));
        for (key, value) in &changed {
            if let Key::Controller { name: ControllerName::Rollout } = key {
                let record = value.and_then(|value| serde_json::from_slice::<ControllerRecord>(value).ok());
                self.holder = record.map(|record| record.replica);
            }
        }
    }

    /// An expired lease has no time. A killed server's lease expires after the kill.
    fn lease_ended(&mut self, changed: &[(Key, Option<&[u8]>)]) {
        let is_end = |(key, value): &(Key, Option<&[u8]>)| {
            matches!(key, Key::Controller { name: ControllerName::Rollout }) && value.is_none()
        };
        let next = self.evidence.went.get(self.went).filter(|(id, _)| self.holder.as_ref() == Some(id));
        if let (true, Some((id, at))) = (changed.iter().any(is_end), next) {
            self.trial.replica_lost(id, self.moment(*at));
            self.went += 1;
        }
    }

    /// True if a transaction is an operator command. Decided by its content, because acknowledgements may be lost.
    fn is_operator_command(&self, changed: &[(Key, Option<&[u8]>)]) -> bool {
        let mut begun = records(changed).filter(|record| !self.records.contains_key(&record.id));
        if let Some(begun) = begun.next() {
            return begun.by != MUSTER;
        }
        let is_pause =
            |phase: &RolloutPhase| matches!(phase, RolloutPhase::Paused { why: PauseReason::Operator { .. } });
        records(changed).any(|after| {
            self.records.get(&after.id).is_some_and(|before| match (&before.phase, &after.phase) {
                (before, RolloutPhase::Paused { .. }) => is_pause(&after.phase) && !is_pause(before),
                (RolloutPhase::Paused { .. }, RolloutPhase::Running) => true,
                (before, RolloutPhase::Aborted { .. }) => *before != after.phase,
                (
                    _,
                    RolloutPhase::Running
                    | RolloutPhase::Completed
                    | RolloutPhase::RolledBack { .. }
                    | RolloutPhase::Superseded { .. },
                ) => false,
            })
        })
    }

    /// The author of a transaction. For a grant it is in the servers' logs; for other steps it is the holder of the
    /// controller.
    fn author(&self, changed: &[(Key, Option<&[u8]>)]) -> TraceWriter {
        let is_of_rollouts = |key: &Key| matches!(key, Key::Rollout { .. } | Key::Desired { .. });
        if self.is_operator_command(changed) {
            return TraceWriter::Operator;
        }
        if !changed.iter().any(|(key, value)| is_of_rollouts(key) && value.is_some()) {
            return TraceWriter::Other;
        }
        let unknown = || ReplicaId::new("unknown").unwrap();
        let holder = self.holder.clone().unwrap_or_else(unknown);
        let GrantedNode { by, names } = self.evidence.granted;
        for (key, value) in changed {
            let (Key::Desired { node }, Some(value)) = (key, value) else { continue };
            let Ok(grant) = serde_json::from_slice::<DesiredRecord>(value) else { continue };
            let logged_by = by.get(&(grant.rollout.to_string(), node.to_string()));
            if let Some(index) = logged_by.filter(|index| names.get(&holder) != Some(index)) {
                let other = names.iter().find(|(_, of)| *of == index).map(|(name, _)| name.clone());
                return TraceWriter::Engine(other.unwrap_or_else(unknown));
            }
        }
        TraceWriter::Engine(holder)
    }

    /// Journal entries up to a time.
    fn feed_journal_until(&mut self, until: Timestamp) {
        let evidence = self.evidence;
        while let Some((id, at)) = evidence.went.get(self.went).filter(|(_, at)| *at < until) {
            self.trial.replica_lost(id, self.moment(*at));
            self.went += 1;
        }
        while let Some(entry) = evidence.journal.get(self.journal).filter(|entry| entry.at <= until) {
            self.journal += 1;
            self.entry(entry);
        }
    }

    fn entry(&mut self, entry: &JournalEntry) {
        let at = self.moment(entry.at);
        match &entry.what {
            JournalEvent::ApplierStarts(of) => {
                self.counts.runs += 1;
                let run = self.run(of);
                self.trial.applier_starts(&of.node, &run);
            }
            JournalEvent::ApplierEnds(of) => {
                let run = self.run(of);
                self.trial.applier_ends(&of.node, &run, RunResult::Changed, at);
            }
            JournalEvent::ChecksStart(of) => self.trial.checks_start(&of.node, at),
            JournalEvent::ChecksEnd(of) => {
                let run = self.run(of);
                self.trial.checks_end(&of.node, &run, true, at);
            }
            JournalEvent::Gate { rollout, stage, wave } => {
                let (_, plan) = &self.evidence.plans[rollout];
                let is_it = |planned: &muster_core::rollout::plan::PlannedWave| {
                    (planned.stage, planned.wave) == (*stage, *wave)
                };
                self.counts.gates += 1;
                self.trial.gate_passed(*rollout, plan.waves.iter().position(is_it).unwrap());
            }
        }
    }

    /// A run, with the generation from its report.
    fn run(&self, of: &OfRun) -> TraceRun {
        let reported = self.runs.get(&of.run).unwrap_or_else(|| panic!("{of:?} was never reported"));
        TraceRun { version: of.version.clone(), ..reported.clone() }
    }
}

/// All reported runs.
#[expect(clippy::wildcard_enum_match_arm, reason = "other keys have no runs")]
fn runs(history: &[RevisionChanges]) -> BTreeMap<RunId, TraceRun> {
    let changes = history.iter().flat_map(|revision| &revision.changes).filter_map(changed);
    let last = changes.filter_map(|(key, value)| match key {
        Key::Observed { .. } => serde_json::from_slice::<ObservedRecord>(value?).ok()?.last,
        _ => None,
    });
    let run = |last: muster_core::report::record::LastRun| TraceRun {
        run: last.run,
        version: last.version,
        generation: last.generation,
        causes: last.causes,
    };
    last.map(run).map(|run| (run.run.clone(), run)).collect()
}

/// Rollout records in a transaction.
fn records(changed: &[(Key, Option<&[u8]>)]) -> impl Iterator<Item = RolloutRecord> {
    let of_rollout = |(key, value): &(Key, Option<&[u8]>)| {
        let value = value.filter(|_| matches!(key, Key::Rollout { .. }))?;
        serde_json::from_slice(value).ok()
    };
    changed.iter().filter_map(of_rollout)
}

pub(super) fn changed(change: &RawChange) -> Option<(Key, Option<&[u8]>)> {
    let (_, key) = keys::parse(change.key())?;
    Some(match change {
        RawChange::Put { value, .. } => (key, Some(value)),
        RawChange::Delete { .. } => (key, None),
    })
}

fn watch_change(change: &RawChange, revision: At) -> WatchChange {
    match change {
        RawChange::Put { key, value, .. } => {
            WatchChange::Put(KeyValue { key: key.clone(), value: value.clone().into(), revision, lease: None })
        }
        RawChange::Delete { key } => WatchChange::Delete { key: key.clone() },
    }
}

/// The latest time in a transaction; none if it has no time.
#[expect(clippy::wildcard_enum_match_arm, reason = "other keys have no time")]
fn written(changed: &[(Key, Option<&[u8]>)]) -> Option<Timestamp> {
    // A hello writes `observed` too. Only a report puts a run into the history, or the node into another state.
    let is_report = |of: &NodeName| {
        changed.iter().any(|(key, value)| match key {
            Key::PastRun { node, .. } | Key::Status { node, .. } => node == of && value.is_some(),
            _ => false,
        })
    };
    let times = changed.iter().filter_map(|(key, value)| {
        let value = (*value)?;
        match key {
            Key::Desired { .. } => Some(serde_json::from_slice::<DesiredRecord>(value).ok()?.granted),
            Key::Rollout { .. } => latest(&serde_json::from_slice(value).ok()?),
            Key::Controller { .. } => Some(serde_json::from_slice::<ControllerRecord>(value).ok()?.since),
            Key::Observed { node } if is_report(node) => {
                let observed: ObservedRecord = serde_json::from_slice(value).ok()?;
                observed.since.max(observed.last.map(|last| last.ended))
            }
            _ => None,
        }
    });
    times.max()
}

fn latest(record: &RolloutRecord) -> Option<Timestamp> {
    let of_waves = record.waves.iter().flat_map(|wave| {
        let gate = wave.gate.as_ref().map(|gate| match gate {
            GateVerdict::Passed { at } | GateVerdict::Failed { at, .. } | GateVerdict::Inconclusive { at, .. } => *at,
        });
        let promoted = wave.promoted.as_ref().map(|promoted| promoted.at);
        [Some(wave.began), wave.settled, gate, promoted, wave.passed]
    });
    let own = [Some(record.started), Some(record.phase_since), Some(record.steps.progress)];
    own.into_iter().chain(of_waves).flatten().max()
}
