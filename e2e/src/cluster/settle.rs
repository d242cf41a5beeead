//! The fleet at rest, and the judgement.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use muster_core::keys::{Key, parse};
use muster_core::names::ReplicaId;
use muster_core::replica::{ControllerName, ControllerRecord, PresenceRecord};
use muster_core::report::Outcome;
use muster_etcd_rig::{Dump, RevisionChanges};

use muster_core::report::record::ObservedRecord;
use muster_testkit::wait::eventually;

use crate::cluster::checker::ExecutedRun;
use crate::cluster::fleet::{Fleet, PREFIX, START};
use crate::cluster::load::Trigger;

/// Time to converge after a fault. A lease expires after 10 seconds. Agents detect a dead connection after 25 seconds,
/// and retry reports within 30; all of these in a row take less than this.
const REST: Duration = Duration::from_secs(180);

impl Fleet {
    /// Stops the load, waits until the fleet has converged on one more version, checks everything, and resumes the
    /// load. `what` names what happened before.
    pub fn check(&mut self, what: &str) {
        let begin = Instant::now();
        self.load.pause();
        let last = self.load.trigger();
        self.rest(&last);
        let rested = begin.elapsed();
        self.read();
        self.checker.all_acknowledged();
        for trigger in self.load.acknowledged() {
            self.checker.triggered(trigger.revision, &trigger.version);
        }
        let journal = self.journal();
        self.checker.executed(&journal);
        self.compare_views();
        let violations = self.checker.violations();
        assert!(violations.is_empty(), "after {what}:\n  {}", violations.join("\n  "));
        println!(
            "  judged after {what}: {} reports, revision {}; at rest after {rested:.1?}, judged in {:.1?}",
            self.checker.reports(),
            self.checker.last(),
            begin.elapsed() - rested
        );
        self.load.resume();
    }

    /// The version that was chosen last, by the store.
    pub fn version(&self) -> String {
        let dump = self.wait(self.etcd.dump(PREFIX));
        let found = dump.entries.iter().find(|entry| entry.key.ends_with("/current_version"));
        found.map(|entry| String::from_utf8_lossy(&entry.value).into_owned()).unwrap()
    }

    /// The first version of all. What nodes look up changes while they come into service one by one, and not any more
    /// afterwards.
    pub(super) fn settle_for_the_first_time(&mut self) {
        let nodes = self.agents.len();
        eventually("every node has proved its first version", START, || {
            let dump = self.wait(self.etcd.dump(PREFIX));
            let active = dump.entries.iter().filter(|entry| entry.key.contains("/active_roles/")).count();
            if active == nodes { Ok(()) } else { Err(format!("{active} of {nodes} are in service")) }
        });
        let first = self.load.trigger();
        self.rest(&first);
        self.read();
        self.checker.has_settled();
        let violations = self.checker.violations();
        assert!(violations.is_empty(), "at the start:\n  {}", violations.join("\n  "));
    }

    /// Waits until every node has validated this change of the version, according to the store, and has no unsent
    /// report; until the store has exactly the running replicas, a replica holds each controller, and every agent is
    /// connected.
    fn rest(&self, last: &Trigger) {
        eventually(&format!("the fleet is at rest at {last:?}"), REST, || {
            let waiting: Vec<String> = self
                .agents
                .iter()
                .filter(|agent| agent.waiting() > 0)
                .map(|agent| format!("{} has {} reports to send", agent.node, agent.waiting()))
                .collect();
            let dump = self.wait(self.etcd.dump(PREFIX));
            let behind: Vec<&str> = self.nodes().filter(|node| !has_validated(&dump, node, last)).collect();
            let servers = servers(&dump, self.replicas.len());
            if waiting.is_empty() && behind.is_empty() && servers.is_ok() {
                return Ok(());
            }
            Err(format!("not at {}: {}; {}; {servers:?}", last.version, behind.join(", "), waiting.join(", ")))
        });
    }

    /// Waits until no agent has an unsent report.
    pub fn wait_for_reports(&self) {
        eventually("all reports have been sent", REST, || {
            let waiting: Vec<&str> =
                self.agents.iter().filter(|agent| agent.waiting() > 0).map(|agent| agent.node.as_str()).collect();
            if waiting.is_empty() { Ok(()) } else { Err(waiting.join(", ")) }
        });
    }

    /// Feeds the checker with the latest history.
    fn read(&mut self) {
        self.read_history();
    }

    /// The same; returns the history.
    pub fn read_history(&mut self) -> Vec<RevisionChanges> {
        self.wait(self.changes.catch_up(&self.etcd));
        let history = self.changes.drain();
        self.checker.read(&history);
        for agent in &mut self.agents {
            let said = agent.read_new();
            self.checker.acknowledged(&said.acknowledged);
            said.dropped.into_iter().for_each(|line| self.checker.add_violation(line));
        }
        for replica in &mut self.replicas {
            if replica.program.has_ended() {
                self.checker.add_violation(format!("{} has ended by itself", replica.name));
            }
        }
        history
    }

    /// Entries that appliers have written.
    fn journal(&self) -> Vec<ExecutedRun> {
        let text = fs::read_to_string(&self.journal).unwrap();
        let executed = |line: &str| {
            let (node, run) = line.split_once(' ').unwrap_or_else(|| panic!("a line of the journal is {line:?}"));
            ExecutedRun { node: node.to_owned(), run: run.to_owned() }
        };
        text.lines().map(executed).collect()
    }
}

/// Checks the store's records of replicas and controllers while all replicas run.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other keys say nothing of servers")]
pub(super) fn servers(dump: &Dump, replicas: usize) -> Result<(), String> {
    let all: Vec<(Key, &[u8])> =
        dump.entries.iter().filter_map(|entry| Some((parse(&entry.key)?.1, entry.value.as_slice()))).collect();
    let replica = |key: &Key| match key {
        Key::Replica { replica } => Some(replica.clone()),
        _ => None,
    };
    let living: BTreeSet<ReplicaId> = all.iter().filter_map(|(key, _)| replica(key)).collect();
    if living.len() != replicas {
        return Err(format!("there are {replicas} replicas, and the store knows {living:?}"));
    }
    let mut holder = None;
    for (key, value) in &all {
        match key {
            Key::Controller { name: ControllerName::Liveness } => {
                holder = serde_json::from_slice::<ControllerRecord>(value).ok().map(|record| record.replica);
            }
            Key::Presence { node } => {
                let at = serde_json::from_slice::<PresenceRecord>(value).ok().and_then(|record| record.replica);
                if !at.as_ref().is_some_and(|at| living.contains(at)) {
                    return Err(format!("{node} is connected to {at:?}"));
                }
            }
            _ => {}
        }
    }
    match holder {
        Some(holder) if living.contains(&holder) => Ok(()),
        other => Err(format!("liveness is held by {other:?}")),
    }
}

/// Whether the last report of a node validates this change of the version.
fn has_validated(dump: &Dump, node: &str, trigger: &Trigger) -> bool {
    let found = dump.entries.iter().find(|entry| match parse(&entry.key) {
        Some((_, Key::Observed { node: of })) => of.as_str() == node,
        Some(_) | None => false,
    });
    let observed: Option<ObservedRecord> = found.and_then(|entry| serde_json::from_slice(&entry.value).ok());
    observed.and_then(|observed| observed.last).is_some_and(|last| {
        i64::try_from(last.generation.number) == Ok(trigger.revision) && matches!(last.outcome, Outcome::Validated(_))
    })
}
