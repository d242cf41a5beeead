//! The history of etcd and the journal, brought into one order and before the judge of the simulator.
//!
//! All processes are on one machine and read one clock, so what they write down is when it was. A transaction happened at the
//! latest time that stands in what it wrote, or a moment after; so what the journal has before that time came before it. The
//! order of transactions is that of their revisions.

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
use muster_sim::simulation::{Run, Trial, Word};
use muster_store::{KeyValue, WatchChange as Told};

use super::journal::{Entry, OfRun, What};
use crate::server::ENV;

/// Between the end of a check, which its program writes down, and the report, in which its agent does: the same clock.
const SLACK: Duration = Duration::from_millis(20);

/// All that was seen.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    pub history: &'a [RevisionChanges],
    pub journal: &'a [Entry],
    /// The plans of all rollouts that are in the history, but for those that moved everybody at once.
    pub plans: &'a BTreeMap<RolloutId, (String, RolloutPlan)>,
    /// Servers that were ended or stopped, and when.
    pub went: &'a [(ReplicaId, Timestamp)],
    /// What servers say that they have granted.
    pub granted: &'a Granted,
}

/// Which server says that it has granted something to a node, by the rollout and the node; and by which names the store has
/// known that server.
#[derive(Clone, Debug, Default)]
pub struct Granted {
    pub by: BTreeMap<(String, String), usize>,
    pub names: BTreeMap<ReplicaId, usize>,
}

/// What was heard, in numbers: a judge before whom nothing was brought is content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub transactions: usize,
    pub grants: usize,
    pub runs: usize,
    pub gates: usize,
    pub words: usize,
}

/// In whose name rollouts begin that nobody has asked for.
const MUSTER: &str = "muster";

/// What came of it.
#[derive(Debug)]
pub struct Judged {
    pub trial: Trial,
    pub heard: Heard,
    /// The revisions of what operators have said.
    pub words: Vec<i64>,
}

/// Brings it all before the judge.
pub fn hear(evidence: &Evidence<'_>) -> Judged {
    let mut hearing = Hearing::new(evidence);
    for revision in evidence.history {
        hearing.transaction(revision);
    }
    hearing.journal_until(Timestamp::MAX);
    let Hearing { trial, heard, words, .. } = hearing;
    Judged { trial, heard, words }
}

struct Hearing<'a> {
    evidence: &'a Evidence<'a>,
    trial: Trial,
    heard: Heard,
    runs: BTreeMap<RunId, Run>,
    /// As they are now.
    records: BTreeMap<RolloutId, RolloutRecord>,
    /// The revisions of what operators have said.
    words: Vec<i64>,
    holder: Option<ReplicaId>,
    begin: Timestamp,
    now: Timestamp,
    journal: usize,
    went: usize,
}

impl<'a> Hearing<'a> {
    fn new(evidence: &'a Evidence<'a>) -> Self {
        let mut trial = Trial::new(EnvName::new(ENV).unwrap(), SLACK);
        for (digest, plan) in evidence.plans.values() {
            trial.plan(digest.clone(), plan.clone());
        }
        let begin = evidence.journal.first().map(|entry| entry.at).unwrap();
        Self {
            evidence,
            trial,
            heard: Heard::default(),
            runs: runs(evidence.history),
            records: BTreeMap::new(),
            words: Vec::new(),
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
        let touched: Vec<(Key, Option<&[u8]>)> = revision.changes.iter().filter_map(touched).collect();
        let at = written(&touched);
        self.now = self.now.max(at.unwrap_or(self.now));
        self.journal_until(self.now);
        self.lease_ended(&touched);
        let word = self.word(&touched);
        if word == Word::Operator {
            self.heard.words += 1;
            self.words.push(revision.revision);
        }
        let number = At(u64::try_from(revision.revision).unwrap());
        let changes: Vec<Told> = revision.changes.iter().map(|change| told(change, number)).collect();
        self.trial.committed(self.moment(at.unwrap_or(self.now)), number, &changes, word);
        self.heard.transactions += 1;
        self.heard.grants += touched.iter().filter(|(key, _)| matches!(key, Key::Desired { .. })).count();
        self.records.extend(records(&touched).map(|record| (record.id, record)));
        for (key, value) in &touched {
            if let Key::Controller { name: ControllerName::Rollout } = key {
                let record = value.and_then(|value| serde_json::from_slice::<ControllerRecord>(value).ok());
                self.holder = record.map(|record| record.replica);
            }
        }
    }

    /// The end of a lease says no time. That of a server that went comes after it went, whatever else was written meanwhile.
    fn lease_ended(&mut self, touched: &[(Key, Option<&[u8]>)]) {
        let is_end = |(key, value): &(Key, Option<&[u8]>)| {
            matches!(key, Key::Controller { name: ControllerName::Rollout }) && value.is_none()
        };
        let next = self.evidence.went.get(self.went).filter(|(id, _)| self.holder.as_ref() == Some(id));
        if let (true, Some((id, at))) = (touched.iter().any(is_end), next) {
            self.trial.replica_went(id, self.moment(*at));
            self.went += 1;
        }
    }

    /// Whether only an operator says such a thing. By what is written, and not by what was acknowledged: an answer may be
    /// lost.
    fn is_said(&self, touched: &[(Key, Option<&[u8]>)]) -> bool {
        let mut begun = records(touched).filter(|record| !self.records.contains_key(&record.id));
        if let Some(begun) = begun.next() {
            return begun.by != MUSTER;
        }
        let is_pause =
            |phase: &RolloutPhase| matches!(phase, RolloutPhase::Paused { why: PauseReason::Operator { .. } });
        records(touched).any(|after| {
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

    /// In whose name it was written. Of a grant the servers' own logs say it; of other steps nobody does, and then it is the
    /// one who holds the controller.
    fn word(&self, touched: &[(Key, Option<&[u8]>)]) -> Word {
        let is_of_rollouts = |key: &Key| matches!(key, Key::Rollout { .. } | Key::Desired { .. });
        if self.is_said(touched) {
            return Word::Operator;
        }
        if !touched.iter().any(|(key, value)| is_of_rollouts(key) && value.is_some()) {
            return Word::Other;
        }
        let nobody = || ReplicaId::new("nobody").unwrap();
        let holder = self.holder.clone().unwrap_or_else(nobody);
        let Granted { by, names } = self.evidence.granted;
        for (key, value) in touched {
            let (Key::Desired { node }, Some(value)) = (key, value) else { continue };
            let Ok(grant) = serde_json::from_slice::<DesiredRecord>(value) else { continue };
            let said = by.get(&(grant.rollout.to_string(), node.to_string()));
            if let Some(said) = said.filter(|said| names.get(&holder) != Some(said)) {
                let other = names.iter().find(|(_, index)| *index == said).map(|(name, _)| name.clone());
                return Word::Engine(other.unwrap_or_else(nobody));
            }
        }
        Word::Engine(holder)
    }

    /// What was written down up to a time.
    fn journal_until(&mut self, until: Timestamp) {
        let evidence = self.evidence;
        while let Some((id, at)) = evidence.went.get(self.went).filter(|(_, at)| *at < until) {
            self.trial.replica_went(id, self.moment(*at));
            self.went += 1;
        }
        while let Some(entry) = evidence.journal.get(self.journal).filter(|entry| entry.at <= until) {
            self.journal += 1;
            self.entry(entry);
        }
    }

    fn entry(&mut self, entry: &Entry) {
        let at = self.moment(entry.at);
        match &entry.what {
            What::ApplierStarts(of) => {
                self.heard.runs += 1;
                let run = self.run(of);
                self.trial.applier_starts(&of.node, &run);
            }
            What::ApplierEnds(of) => {
                let run = self.run(of);
                self.trial.applier_ends(&of.node, &run, RunResult::Changed, at);
            }
            What::ChecksStart(of) => self.trial.checks_start(&of.node, at),
            What::ChecksEnd(of) => {
                let run = self.run(of);
                self.trial.checks_end(&of.node, &run, true, at);
            }
            What::Gate { rollout, stage, wave } => {
                let (_, plan) = &self.evidence.plans[rollout];
                let is_it = |planned: &muster_core::rollout::plan::PlannedWave| {
                    (planned.stage, planned.wave) == (*stage, *wave)
                };
                self.heard.gates += 1;
                self.trial.gate_passed(*rollout, plan.waves.iter().position(is_it).unwrap());
            }
        }
    }

    /// What is known of a run: for which generation it was made is in its report.
    fn run(&self, of: &OfRun) -> Run {
        let reported = self.runs.get(&of.run).unwrap_or_else(|| panic!("nobody has reported {of:?}"));
        Run { version: of.version.clone(), ..reported.clone() }
    }
}

/// Every run that was reported.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other keys say nothing of runs")]
fn runs(history: &[RevisionChanges]) -> BTreeMap<RunId, Run> {
    let changes = history.iter().flat_map(|revision| &revision.changes).filter_map(touched);
    let last = changes.filter_map(|(key, value)| match key {
        Key::Observed { .. } => serde_json::from_slice::<ObservedRecord>(value?).ok()?.last,
        _ => None,
    });
    let run = |last: muster_core::report::record::LastRun| Run {
        run: last.run,
        version: last.version,
        generation: last.generation,
        causes: last.causes,
    };
    last.map(run).map(|run| (run.run.clone(), run)).collect()
}

/// The records of rollouts that a transaction has written.
fn records(touched: &[(Key, Option<&[u8]>)]) -> impl Iterator<Item = RolloutRecord> {
    let of_rollout = |(key, value): &(Key, Option<&[u8]>)| {
        let value = value.filter(|_| matches!(key, Key::Rollout { .. }))?;
        serde_json::from_slice(value).ok()
    };
    touched.iter().filter_map(of_rollout)
}

pub(super) fn touched(change: &RawChange) -> Option<(Key, Option<&[u8]>)> {
    let (_, key) = keys::parse(change.key())?;
    Some(match change {
        RawChange::Put { value, .. } => (key, Some(value)),
        RawChange::Delete { .. } => (key, None),
    })
}

fn told(change: &RawChange, revision: At) -> Told {
    match change {
        RawChange::Put { key, value, .. } => {
            Told::Put(KeyValue { key: key.clone(), value: value.clone().into(), revision, lease: None })
        }
        RawChange::Delete { key } => Told::Delete { key: key.clone() },
    }
}

/// The latest time that a transaction has written down; none if it says nothing of that.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other key is asked for its time")]
fn written(touched: &[(Key, Option<&[u8]>)]) -> Option<Timestamp> {
    let is_report = |of: &NodeName| touched.iter().any(|(key, _)| matches!(key, Key::History { node } if node == of));
    let times = touched.iter().filter_map(|(key, value)| {
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
    let own = [Some(record.started), Some(record.phase_since), Some(record.progress)];
    own.into_iter().chain(of_waves).flatten().max()
}
