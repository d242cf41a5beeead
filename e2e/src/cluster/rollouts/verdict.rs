//! The judgement of rollouts, by both judges: that of the store, and that of the simulator.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::keys::{Key, parse};
use muster_core::names::ReplicaId;
use muster_core::replicas::{ControllerName, ReplicaRecord};
use muster_etcd_rig::{Change, Revision};
use muster_sim::simulation::Rule;

use super::carry::Carried;
use super::hearing::{Evidence, Granted, hear};
use super::journal::{self, Entry, What};
use crate::cluster::fleet::Fleet;
use crate::cluster::judge::Executed;

/// Another server carries a rollout on within this.
const TAKEOVER: Duration = Duration::from_secs(15);

impl Fleet {
    /// Who carries rollouts out now, for whoever is about to do something to it.
    pub fn acting(&self) -> (ReplicaId, Timestamp) {
        let (_, id) = self.holder(ControllerName::Rollout);
        #[expect(
            clippy::disallowed_methods,
            reason = "a takeover is measured from outside, by the clock that all share"
        )]
        let now = Timestamp::now();
        (id, now)
    }

    /// Judges all that has happened. `went`: who carried rollouts out, and was ended or stopped, and when.
    pub fn judge_rollouts(&mut self, rollouts: &[Carried], went: &[(ReplicaId, Timestamp)]) {
        self.until_reported();
        let history = self.read_history();
        let journal = journal::read(&fs::read_to_string(&self.journal).unwrap());
        let executed: Vec<Executed> = journal.iter().filter_map(started).collect();
        self.judge.all_acknowledged();
        self.judge.executed(&executed);
        let complaints = self.judge.complaints();
        assert!(complaints.is_empty(), "{}", complaints.join("\n  "));

        let granted = self.granted(&history);
        let evidence = Evidence { history: &history, journal: &journal, rollouts, went, granted: &granted };
        let (trial, heard) = hear(&evidence);
        let violations: Vec<String> = trial.violations().iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "{}", violations.join("\n  "));
        println!("  {heard:?}; takeovers: {:?}", trial.takeovers());

        let planned: usize = rollouts.iter().map(|carried| carried.plan.node_count()).sum();
        let waves: usize = rollouts.iter().map(|carried| carried.plan.waves.len()).sum();
        assert_eq!(heard.grants, planned, "each node was granted once");
        assert!(heard.runs >= planned && heard.gates >= waves, "there was something to judge: {heard:?}");
        // Of a grant whose answer was lost nobody says anything.
        assert!(granted.by.len() * 2 > planned, "the servers say what they granted: {granted:?}");
        assert_eq!(trial.takeovers().len(), went.len(), "{:?}", trial.takeovers());
        assert!(trial.takeovers().iter().all(|long| *long < TAKEOVER), "{:?}", trial.takeovers());
        is_attentive(&evidence);
    }

    /// What the servers say in their logs that they have granted, and what the store has called them.
    fn granted(&self, history: &[Revision]) -> Granted {
        let mut granted = Granted::default();
        for change in history.iter().flat_map(|revision| &revision.changes) {
            let Change::Put { key, value, .. } = change else { continue };
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

/// A judge who is always content proves nothing: with other evidence it is not.
fn is_attentive(evidence: &Evidence<'_>) {
    let found = |evidence: &Evidence<'_>| -> Vec<Rule> {
        hear(evidence).0.violations().iter().map(|violation| violation.rule).collect()
    };
    let without = |is_left_out: &dyn Fn(&Entry) -> bool| -> Vec<Entry> {
        evidence.journal.iter().filter(|entry| !is_left_out(entry)).cloned().collect()
    };

    // The checks of a run never passed: the node is not what it says.
    let last = evidence.journal.iter().rfind(|entry| matches!(entry.what, What::ChecksEnd(_))).unwrap();
    let rules = found(&Evidence { journal: &without(&|entry| entry == last), ..evidence.clone() });
    assert!(rules.contains(&Rule::VersionTruth), "{rules:?}");

    // No checks ever passed: nobody is back in service when the next ones go.
    let none = without(&|entry| matches!(entry.what, What::ChecksEnd(_)));
    let rules = found(&Evidence { journal: &none, ..evidence.clone() });
    assert!(rules.contains(&Rule::Budget), "{rules:?}");

    // No gate was ever asked.
    let none = without(&|entry| matches!(entry.what, What::Gate { .. }));
    let rules = found(&Evidence { journal: &none, ..evidence.clone() });
    assert!(rules.contains(&Rule::GateOrder), "{rules:?}");

    // Everything was granted by the other server.
    let mut other = evidence.granted.clone();
    other.by.values_mut().for_each(|index| *index = 1 - *index);
    let rules = found(&Evidence { granted: &other, ..evidence.clone() });
    assert!(rules.contains(&Rule::OneHolder), "{rules:?}");
}

fn started(entry: &Entry) -> Option<Executed> {
    match &entry.what {
        What::ApplierStarts(of) => Some(Executed { node: of.node.to_string(), run: of.run.to_string() }),
        What::ApplierEnds(_) | What::ChecksStart(_) | What::ChecksEnd(_) | What::Gate { .. } => None,
    }
}

/// The fields of a line of a log: `name=value` or `name="several values"`.
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
    fn fields_of_a_line_are_found() {
        let line = r#"10:00:00 INFO granted to 2 nodes env=test rollout=2 to=v2 nodes="web1 web2""#;
        let fields = fields(line);
        assert_eq!((fields["rollout"], fields["nodes"], fields["to"]), ("2", "web1 web2", "v2"));
    }
}
