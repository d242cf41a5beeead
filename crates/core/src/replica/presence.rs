//! What a server has to write down of its agents, for the others: `presence/<node>`. Pure: it compares what the view shows
//! with who is connected here.
//!
//! Two replicas never fight over a node. Its agent has moved, and the connection that it left is not known to be dead
//! yet: so when the view shows that another replica has the agent, this one claims it again only after it has *heard*
//! the agent since. From a dead connection nothing is heard.

use std::collections::HashMap;

use jiff::Timestamp;

use crate::fleet::Fleet;
use crate::keys::Keys;
use crate::names::{EnvName, NodeName, ReplicaId};
use crate::replica::PresenceRecord;
use crate::txn::{Guard, Op, Revision, Txn};

/// How many nodes one transaction takes: each is a guard and an operation, and etcd takes 128 of either.
pub const BATCH: usize = 64;

/// A connection as far as this is concerned.
#[derive(Clone, Copy, Debug)]
pub struct LocalSession {
    pub since: Timestamp,
    /// How far the view was when the agent was last heard.
    pub heard_at: Revision,
}

/// One key to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceWrite {
    pub node: NodeName,
    /// The revision of the key that this was decided on; none if it was not there.
    pub seen: Option<Revision>,
    /// None for a node that has left the design: its key goes.
    pub record: Option<PresenceRecord>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PresencePlan {
    pub writes: Vec<PresenceWrite>,
    /// Connected here, and another replica says the same: their next word decides.
    pub contested: Vec<NodeName>,
}

/// Compares what the view shows with who is here.
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

/// The transaction that writes them, each if it is still as it was seen.
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

    /// A fleet of one node, in the design or not, of which the store says where its agent is.
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
    fn only_what_is_not_true_is_written_and_nobody_fights() {
        let web1 = NodeName::new("web1").unwrap();
        let mine = || Some(PresenceRecord { replica: Some(id("me")), since: at(9) });
        let silent = || Some(PresenceRecord { replica: None, since: at(7) });
        let write = |seen: Option<u64>, record| PresencePlan {
            writes: vec![PresenceWrite { node: web1.clone(), seen: seen.map(Revision), record }],
            contested: Vec::new(),
        };
        let contested = || PresencePlan { writes: Vec::new(), contested: vec![web1.clone()] };
        // (what, in the design, what the store says, heard here when the view was at)
        let table = [
            ("a new agent", true, None, Some(1), write(None, mine())),
            ("known to be here", true, Some((Some("me"), 3)), Some(1), PresencePlan::default()),
            ("it was silent", true, Some((None, 3)), Some(1), write(Some(3), mine())),
            ("it came here from another one", true, Some((Some("other"), 3)), Some(4), write(Some(3), mine())),
            ("it was heard when the view showed it", true, Some((Some("other"), 3)), Some(3), write(Some(3), mine())),
            ("it went to another one", true, Some((Some("other"), 3)), Some(2), contested()),
            ("its connection here has ended", true, Some((Some("me"), 3)), None, write(Some(3), silent())),
            ("it is elsewhere", true, Some((Some("other"), 3)), None, PresencePlan::default()),
            ("it is silent", true, Some((None, 3)), None, PresencePlan::default()),
            ("nobody has seen it", true, None, None, PresencePlan::default()),
            ("it has left the design", false, Some((Some("me"), 3)), Some(4), write(Some(3), None)),
            ("it has left the design, elsewhere", false, Some((Some("other"), 3)), None, PresencePlan::default()),
            ("not of the design", false, None, Some(4), PresencePlan::default()),
        ];
        for (what, designed, presence, heard, expected) in table {
            let here = heard.map(|heard| (web1.clone(), LocalSession { since: at(9), heard_at: Revision(heard) }));
            let here = here.into_iter().collect();
            assert_eq!(plan(&fleet(designed, presence), &id("me"), &here, |_| at(7)), expected, "{what}");
        }
    }

    #[test]
    fn a_batch_stays_within_what_a_store_takes() {
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
