//! Waits until the fleet is idle, and checks its history, and the logs and outboxes of its agents.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use muster_core::keys::{Key, parse};
use muster_core::names::ReplicaId;
use muster_core::replica::{ControllerName, ControllerRecord, PresenceRecord};
use muster_core::report::Outcome;
use muster_core::report::record::ObservedRecord;
use muster_etcd_rig::{Dump, RevisionChanges};
use muster_testkit::wait::eventually;

use crate::cluster::checker::{AcknowledgedReport, ExecutedRun};
use crate::cluster::fleet::{ClusterFleet, PREFIX, START};
use crate::cluster::load::Trigger;

/// Time to converge after a fault. A lease expires after 10 seconds. Agents detect a dead connection after 25 seconds,
/// and retry reports within 30; all of these in a row take less than this.
const REST: Duration = Duration::from_secs(180);

impl ClusterFleet {
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
            "  checked after {what}: {} reports, revision {}; converged after {rested:.1?}, checked in {:.1?}",
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
        eventually("every node has validated its first version", START, || {
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

/// True if the last report of a node validates this change of the version.
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

/// The log of one agent, read as far as it goes.
#[derive(Debug)]
pub struct AgentLog {
    pub node: String,
    log: PathBuf,
    outbox: PathBuf,
    read: usize,
}

/// Reports named in a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LoggedReports {
    pub acknowledged: Vec<AcknowledgedReport>,
    /// Reports that the agent has dropped. They are lost.
    pub dropped: Vec<String>,
}

impl AgentLog {
    pub fn new(node: &str, log: &Path, state: &Path) -> Self {
        Self { node: node.to_owned(), log: log.to_owned(), outbox: state.join("outbox"), read: 0 }
    }

    /// The reports logged since the last call.
    pub fn read_new(&mut self) -> LoggedReports {
        let text = fs::read(&self.log).unwrap();
        // An incomplete last line is read with the next call.
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1).max(self.read);
        let new = String::from_utf8_lossy(&text[self.read..end]).into_owned();
        self.read = end;
        parse_log(&self.node, &new)
    }

    /// Number of unsent reports.
    pub fn waiting(&self) -> usize {
        let entries = fs::read_dir(&self.outbox).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".json")).count()
    }
}

fn parse_log(node: &str, text: &str) -> LoggedReports {
    let mut reports = LoggedReports::default();
    for line in text.lines() {
        if line.contains("it is dropped")
            || line.contains("moved to outbox/refused")
            || line.contains("requesting a new incarnation")
        {
            reports.dropped.push(format!("{node}: {line}"));
        }
        let Some((_, rest)) = line.split_once(" reported ") else { continue };
        let field = |name: &str| {
            rest.split(' ').find_map(|part| part.strip_prefix(name).and_then(|part| part.strip_prefix('=')))
        };
        let (Some(run), Some(seq), Some(taken)) = (field("run"), field("seq"), field("taken")) else {
            panic!("{node}: cannot parse the line {line:?}");
        };
        match taken {
            "Applied" | "AlreadyApplied" => reports.acknowledged.push(AcknowledgedReport {
                node: node.to_owned(),
                seq: seq.parse().unwrap(),
                run: run.to_owned(),
            }),
            _ => reports.dropped.push(format!("{node}: {line}")),
        }
    }
    reports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_reports_are_understood_and_others_passed_over() {
        let log = "\
2026-11-15T10:00:00Z  INFO run started run=r1
2026-11-15T10:00:01Z DEBUG reported run=r1 seq=1 taken=Applied
2026-11-15T10:00:02Z DEBUG reported run=r1 seq=2 taken=AlreadyApplied
2026-11-15T10:00:03Z DEBUG reported run=r2 seq=3 taken=Outdated
2026-11-15T10:00:04Z  WARN the report is outdated also under a new incarnation; it is dropped run=r2
";
        let reports = parse_log("web1", log);
        let acknowledged = |seq| AcknowledgedReport { node: "web1".to_owned(), seq, run: "r1".to_owned() };
        assert_eq!(reports.acknowledged, [acknowledged(1), acknowledged(2)]);
        assert_eq!(reports.dropped.len(), 2, "{reports:?}");
    }
}
