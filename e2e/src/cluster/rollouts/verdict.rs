//! The judgement of rollouts, by the history of the store and by what the servers say themselves.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::keys::{Key, parse};
use muster_core::names::{NodeName, ReplicaId};
use muster_core::replicas::{ControllerName, ControllerRecord, ReplicaRecord};
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::DesiredRecord;
use muster_etcd_rig::{Change, Revision};

use super::carry::Carried;
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

        let said = self.granted(&history);
        let told = Told::of(&history, &said);
        let planned: usize = rollouts.iter().map(|carried| carried.plan.node_count()).sum();
        assert_eq!(told.grants.len(), planned, "{told:?}");
        assert!(told.grants.values().all(|times| *times == 1), "each node was granted once: {told:?}");
        assert_eq!(told.by_others, [] as [String; 0], "whoever grants holds the controller");
        // Of a grant whose answer was lost nobody says anything.
        assert!(said.by.len() * 2 > planned, "the servers say what they granted: {said:?}");
        for (id, at) in went {
            let after = told.holders.iter().find(|(holder, since)| holder != id && since > at);
            let (holder, since) = after.unwrap_or_else(|| panic!("nobody has taken over from {id}: {told:?}"));
            let took = Duration::try_from(since.duration_since(*at)).unwrap();
            println!("  {holder} took over from {id} in {took:?}");
            assert!(took < TAKEOVER, "{holder} took over from {id} in {took:?}");
        }
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

/// What the history says of rollouts.
#[derive(Debug, Default)]
struct Told {
    /// How often each node was granted something by each rollout.
    grants: BTreeMap<(RolloutId, NodeName), usize>,
    /// Grants of which another server says that it made them than the one that held the controller.
    by_others: Vec<String>,
    /// Who has held the controller, and since when.
    holders: Vec<(ReplicaId, Timestamp)>,
}

impl Told {
    fn of(history: &[Revision], said: &Granted) -> Self {
        let mut told = Self::default();
        let mut holder: Option<ReplicaId> = None;
        for Revision { revision, changes } in history {
            for change in changes {
                let Change::Put { key, value, .. } = change else { continue };
                if let Some((_, Key::Desired { node })) = parse(key) {
                    let grant: DesiredRecord = serde_json::from_slice(value).unwrap();
                    *told.grants.entry((grant.rollout, node.clone())).or_default() += 1;
                    let by = said.by.get(&(grant.rollout.to_string(), node.to_string()));
                    let held = holder.as_ref().and_then(|holder| said.names.get(holder));
                    if by.is_some() && by != held {
                        told.by_others.push(format!("revision {revision}: {node} by {by:?}, and {held:?} held it"));
                    }
                }
            }
            for change in changes {
                let Some((_, Key::Controller { name: ControllerName::Rollout })) = parse(change.key()) else {
                    continue;
                };
                holder = match change {
                    Change::Delete { .. } => None,
                    Change::Put { value, .. } => {
                        let record: ControllerRecord = serde_json::from_slice(value).unwrap();
                        told.holders.push((record.replica.clone(), record.since));
                        Some(record.replica)
                    }
                };
            }
        }
        told
    }
}

/// Which server says that it has granted something to a node, by the rollout and the node; and by which names the store has
/// known that server.
#[derive(Clone, Debug, Default)]
struct Granted {
    by: BTreeMap<(String, String), usize>,
    names: BTreeMap<ReplicaId, usize>,
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
