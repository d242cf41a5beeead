//! Decides which `presence/<node>` records a replica has to write: compares the view with its local sessions.
//!
//! Two replicas never overwrite each other in turn. When an agent has moved, its old connection is not known to be dead
//! yet. If the view shows the agent at another replica, this one claims it again only after it has received something
//! from the agent since. A dead connection delivers nothing.

use std::collections::HashMap;

use jiff::Timestamp;

use crate::fleet::Fleet;
use crate::keys::Keys;
use crate::names::{EnvName, NodeName, ReplicaId};
use crate::replica::PresenceRecord;
use crate::txn::{Guard, Op, Revision, Txn};

/// Nodes per transaction. Each takes a guard and an operation, and etcd allows 128 of either.
pub const BATCH: usize = 64;

/// A session of a local agent.
#[derive(Clone, Copy, Debug)]
pub struct LocalSession {
    pub since: Timestamp,
    /// Revision of the view when something was last received from the agent.
    pub heard_at: Revision,
}

/// One record to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceWrite {
    pub node: NodeName,
    /// Observed revision of the key. None if it did not exist.
    pub seen: Option<Revision>,
    /// None for a node that left the design: the key is deleted.
    pub record: Option<PresenceRecord>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PresencePlan {
    pub writes: Vec<PresenceWrite>,
    /// Connected here, and recorded at another replica. The next message of the agent decides.
    pub contested: Vec<NodeName>,
}

/// Compares the view with the local sessions.
pub fn plan(
    fleet: &Fleet,
    me: &ReplicaId,
    here: &HashMap<NodeName, LocalSession>,
    silent_since: impl Fn(&NodeName) -> Timestamp,
) -> PresencePlan {
    let mut plan = PresencePlan::default();
    for (name, node, _) in fleet.recorded() {
        let Some(session) = here.get(name) else { continue };
        let shown = node.presence.as_ref().map(|(presence, at)| (presence.replica.as_ref(), *at));
        match shown {
            Some((Some(replica), _)) if replica == me => continue,
            Some((Some(_), at)) if at > session.heard_at => {
                plan.contested.push(name.clone());
                continue;
            }
            Some(_) | None => {}
        }
        let record = PresenceRecord { replica: Some(me.clone()), since: session.since };
        plan.writes.push(PresenceWrite { node: name.clone(), seen: shown.map(|(_, at)| at), record: Some(record) });
    }
    for (name, node) in fleet.nodes() {
        let Some((PresenceRecord { replica: Some(replica), .. }, at)) = &node.presence else { continue };
        if replica != me || (here.contains_key(name) && node.record.is_some()) {
            continue;
        }
        let silent = PresenceRecord { replica: None, since: silent_since(name) };
        let record = node.record.is_some().then_some(silent);
        plan.writes.push(PresenceWrite { node: name.clone(), seen: Some(*at), record });
    }
    plan
}

/// Transaction of the writes. Each is guarded by its observed revision.
pub fn txn(env: &EnvName, writes: &[PresenceWrite]) -> Result<Txn, serde_json::Error> {
    let keys = Keys::new(env);
    let mut txn = Txn::new();
    for write in writes {
        let key = keys.presence(&write.node);
        txn.guards.push(Guard::observed(key.clone(), write.seen));
        txn.ops.push(match &write.record {
            Some(record) => Op::put_json(key, record)?,
            None => Op::delete(key),
        });
    }
    Ok(txn)
}

#[cfg(test)]
mod tests {
    use crate::fleet::KeyChange;
    use crate::keys;

    use super::*;

    fn id(text: &str) -> ReplicaId {
        ReplicaId::new(text).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// A fleet of one node, in the design or not, with a presence record.
    fn fleet(designed: bool, presence: Option<(Option<&str>, u64)>) -> Fleet {
        let env = EnvName::new("test").unwrap();
        let (keys, mut fleet) = (Keys::new(&env), Fleet::new(env));
        let web1 = NodeName::new("web1").unwrap();
        let node = r#"{"role":"web","failure_domain":"a"}"#.as_bytes().to_vec();
        let mut put = |key: String, value: Vec<u8>, at: u64| {
            let (_, parsed) = keys::parse(&key).unwrap();
            let change = KeyChange { key: &key, value: Some(&value), revision: Revision(at) };
            fleet.apply(Revision(at), [(change, parsed)]);
        };
        if designed {
            put(keys.node(&web1), node, 1);
        }
        if let Some((replica, revision)) = presence {
            let record = PresenceRecord { replica: replica.map(id), since: at(5) };
            put(keys.presence(&web1), serde_json::to_vec(&record).unwrap(), revision);
        }
        fleet
    }

    #[test]
    fn presence_writes_only_differences() {
        let web1 = NodeName::new("web1").unwrap();
        let mine = || Some(PresenceRecord { replica: Some(id("me")), since: at(9) });
        let silent = || Some(PresenceRecord { replica: None, since: at(7) });
        let write = |seen: Option<u64>, record| PresencePlan {
            writes: vec![PresenceWrite { node: web1.clone(), seen: seen.map(Revision), record }],
            contested: Vec::new(),
        };
        let contested = || PresencePlan { writes: Vec::new(), contested: vec![web1.clone()] };
        // (case, in the design, presence in the store, view revision of the last message, expected)
        let table = [
            ("a new agent", true, None, Some(1), write(None, mine())),
            ("known to be here", true, Some((Some("me"), 3)), Some(1), PresencePlan::default()),
            ("was silent", true, Some((None, 3)), Some(1), write(Some(3), mine())),
            ("moved here from another replica", true, Some((Some("other"), 3)), Some(4), write(Some(3), mine())),
            ("message at the revision of the record", true, Some((Some("other"), 3)), Some(3), write(Some(3), mine())),
            ("moved to another replica", true, Some((Some("other"), 3)), Some(2), contested()),
            ("disconnected here", true, Some((Some("me"), 3)), None, write(Some(3), silent())),
            ("connected elsewhere", true, Some((Some("other"), 3)), None, PresencePlan::default()),
            ("silent", true, Some((None, 3)), None, PresencePlan::default()),
            ("never connected", true, None, None, PresencePlan::default()),
            ("left the design", false, Some((Some("me"), 3)), Some(4), write(Some(3), None)),
            ("left the design, connected elsewhere", false, Some((Some("other"), 3)), None, PresencePlan::default()),
            ("not in the design", false, None, Some(4), PresencePlan::default()),
        ];
        for (case, designed, presence, received, expected) in table {
            let here =
                received.map(|revision| (web1.clone(), LocalSession { since: at(9), heard_at: Revision(revision) }));
            let here = here.into_iter().collect();
            assert_eq!(plan(&fleet(designed, presence), &id("me"), &here, |_| at(7)), expected, "{case}");
        }
    }

    #[test]
    fn batch_fits_into_a_transaction() {
        let env = EnvName::new("test").unwrap();
        let write = |number| PresenceWrite {
            node: NodeName::new(format!("web{number}")).unwrap(),
            seen: None,
            record: Some(PresenceRecord { replica: Some(id("me")), since: at(9) }),
        };
        let writes: Vec<PresenceWrite> = (1..=BATCH).map(write).collect();
        let txn = txn(&env, &writes).unwrap();
        assert!(txn.guards.len() <= 128 && txn.ops.len() <= 128);
    }
}
