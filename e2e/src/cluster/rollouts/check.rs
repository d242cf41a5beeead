//! Checks rollouts with both checkers: that of the store and that of the simulator.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::keys::{Key, parse};
use muster_core::names::ReplicaId;
use muster_core::replica::{ControllerName, ReplicaRecord};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::RolloutRecord;
use muster_etcd_rig::{RawChange, RevisionChanges};
use muster_sim::simulation::Rule;

use super::fleet;
use super::fleet::{JournalEntry, JournalEvent};
use super::operator::SentCommand;
use super::trace_merge::{self, Evidence, GrantedNode, ObservationCounts, changed};
use crate::cluster::checker::ExecutedRun;
use crate::cluster::fleet::ClusterFleet;

/// Maximum time of a takeover by another server.
const TAKEOVER: Duration = Duration::from_secs(15);

/// Everything that has happened to a fleet.
#[derive(Debug, Default)]
pub struct FleetHistory {
    /// The checked part of the history.
    pub history: Vec<RevisionChanges>,
    /// Holders of the rollout controller that were killed or stopped, with the time.
    pub went: Vec<(ReplicaId, Timestamp)>,
    /// Acknowledged operator commands.
    pub commands: Vec<SentCommand>,
}

impl ClusterFleet {
    /// The present holder of the rollout controller, before a fault hits it.
    pub fn rollout_holder(&self) -> (ReplicaId, Timestamp) {
        let (_, id) = self.holder(ControllerName::Rollout);
        #[expect(clippy::disallowed_methods, reason = "takeovers are measured by the clock of the machine")]
        let now = Timestamp::now();
        (id, now)
    }

    /// Checks everything so far. The fleet must be idle: every run is reported.
    pub fn check_rollouts(&mut self, past: &mut FleetHistory) -> ObservationCounts {
        self.wait_for_reports();
        past.history.extend(self.read_history());
        let found = self.found(&past.history);
        let executed: Vec<ExecutedRun> = found.journal.iter().filter_map(started).collect();
        self.checker.all_acknowledged();
        self.checker.executed(&executed);
        let violations = self.checker.violations();
        assert!(violations.is_empty(), "{}", violations.join("\n  "));

        let result = trace_merge::check(&past.evidence(&found));
        let violations: Vec<String> = result.trial.violations().iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "{}", violations.join("\n  "));
        for command in &past.commands {
            let found = result.commands.iter().filter(|at| command.after < **at && **at <= command.until).count();
            assert_eq!(found, 1, "{command:?} must be in the store once; commands are at {:?}", result.commands);
        }
        let takeovers = result.trial.takeovers();
        assert_eq!(takeovers.len(), past.went.len(), "{takeovers:?}");
        assert!(takeovers.iter().all(|long| *long < TAKEOVER), "{takeovers:?}");
        result.counts
    }

    fn found(&self, history: &[RevisionChanges]) -> RolloutObservations {
        RolloutObservations {
            journal: fleet::read_journal(&fs::read_to_string(&self.journal).unwrap()),
            plans: self.plans(history),
            granted: self.granted(history),
        }
    }

    /// Plans of the rollouts, from the servers' blobs.
    fn plans(&self, history: &[RevisionChanges]) -> BTreeMap<RolloutId, (String, RolloutPlan)> {
        let mut plans = BTreeMap::new();
        for change in history.iter().flat_map(|revision| &revision.changes) {
            let Some((Key::Rollout { id }, Some(value))) = changed(change) else { continue };
            let record: RolloutRecord = serde_json::from_slice(value).unwrap();
            if record.at_once || plans.contains_key(&id) {
                continue;
            }
            let (head, tail) = record.plan.split_at(2);
            let kept = fs::read(self.sandbox.path("blobs").join(head).join(tail)).unwrap();
            plans.insert(id, (record.plan, serde_json::from_slice(&kept).unwrap()));
        }
        plans
    }

    /// Grants in the servers' logs, and the replica ids of the servers.
    fn granted(&self, history: &[RevisionChanges]) -> GrantedNode {
        let mut granted = GrantedNode::default();
        for change in history.iter().flat_map(|revision| &revision.changes) {
            let RawChange::Put { key, value, .. } = change else { continue };
            let Some((_, Key::Replica { replica })) = parse(key) else { continue };
            let record: ReplicaRecord = serde_json::from_slice(value).unwrap();
            let index = self.replicas.iter().position(|replica| record.url.ends_with(&replica.address.to_string()));
            granted.names.insert(replica, index.unwrap());
        }
        for (index, replica) in self.replicas.iter().enumerate() {
            let log = fs::read_to_string(replica.program.log()).unwrap();
            for line in log.lines().filter(|line| line.contains(" granted")) {
                let fields = fields(line);
                let nodes = fields.get("node").or(fields.get("nodes"));
                let (Some(rollout), Some(nodes)) = (fields.get("rollout"), nodes) else { continue };
                for node in nodes.split(' ') {
                    granted.by.insert(((*rollout).to_owned(), node.to_owned()), index);
                }
            }
        }
        granted
    }
}

/// Observations besides the history.
#[derive(Debug)]
struct RolloutObservations {
    journal: Vec<JournalEntry>,
    plans: BTreeMap<RolloutId, (String, RolloutPlan)>,
    granted: GrantedNode,
}

impl FleetHistory {
    fn evidence<'a>(&'a self, found: &'a RolloutObservations) -> Evidence<'a> {
        let RolloutObservations { journal, plans, granted } = found;
        Evidence { history: &self.history, journal, plans, went: &self.went, granted }
    }

    /// Proves that the checker works: there was something to check, and with forged evidence it reports violations.
    pub fn prove_checker(&self, fleet: &ClusterFleet) {
        let found = fleet.found(&self.history);
        let evidence = self.evidence(&found);
        let counts = trace_merge::check(&evidence).counts;
        assert!(counts.runs >= counts.grants && counts.gates > 0 && counts.commands > 0, "{counts:?}");
        // A grant whose response was lost is in no log.
        assert!(found.granted.by.len() * 2 > counts.grants, "grants must be in the servers' logs: {:?}", found.granted);
        detects_forged_evidence(&evidence);
    }
}

fn detects_forged_evidence(evidence: &Evidence<'_>) {
    let found = |evidence: &Evidence<'_>| -> Vec<Rule> {
        trace_merge::check(evidence).trial.violations().iter().map(|violation| violation.rule).collect()
    };
    let without = |is_left_out: &dyn Fn(&JournalEntry) -> bool| -> Vec<JournalEntry> {
        evidence.journal.iter().filter(|entry| !is_left_out(entry)).cloned().collect()
    };

    // The checks of a run never passed: the node is not what it reports.
    let last = evidence.journal.iter().rfind(|entry| matches!(entry.what, JournalEvent::ChecksEnd(_))).unwrap();
    let rules = found(&Evidence { journal: &without(&|entry| entry == last), ..evidence.clone() });
    assert!(rules.contains(&Rule::VersionTruth), "{rules:?}");

    // No checks ever passed: no node is back in service when the next ones are granted.
    let none = without(&|entry| matches!(entry.what, JournalEvent::ChecksEnd(_)));
    let rules = found(&Evidence { journal: &none, ..evidence.clone() });
    assert!(rules.contains(&Rule::Budget), "{rules:?}");

    // No gate ever ran.
    let none = without(&|entry| matches!(entry.what, JournalEvent::Gate { .. }));
    let rules = found(&Evidence { journal: &none, ..evidence.clone() });
    assert!(rules.contains(&Rule::GateOrder), "{rules:?}");

    // Everything was granted by the other server.
    let mut other = evidence.granted.clone();
    other.by.values_mut().for_each(|index| *index = 1 - *index);
    let rules = found(&Evidence { granted: &other, ..evidence.clone() });
    assert!(rules.contains(&Rule::OneHolder), "{rules:?}");
}

fn started(entry: &JournalEntry) -> Option<ExecutedRun> {
    match &entry.what {
        JournalEvent::ApplierStarts(of) => Some(ExecutedRun { node: of.node.to_string(), run: of.run.to_string() }),
        JournalEvent::ApplierEnds(_)
        | JournalEvent::ChecksStart(_)
        | JournalEvent::ChecksEnd(_)
        | JournalEvent::Gate { .. } => None,
    }
}

/// Fields of a log line: `name=value` or `name="several values"`.
fn fields(line: &str) -> BTreeMap<&str, &str> {
    let mut found = BTreeMap::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('=') {
        let name = before.rsplit(' ').next().unwrap_or(before);
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(' ').unwrap_or((after, "")),
        };
        found.insert(name, value);
        rest = left;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_log_line_are_parsed() {
        let line = r#"10:00:00 INFO granted to 2 nodes env=test rollout=2 to=v2 nodes="web1 web2""#;
        let fields = fields(line);
        assert_eq!((fields["rollout"], fields["nodes"], fields["to"]), ("2", "web1 web2", "v2"));
    }
}
