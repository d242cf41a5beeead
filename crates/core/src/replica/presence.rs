//! Decides which `presence/<node>` records a replica has to write: compares the view with its local sessions.
//!
//! Two replicas never overwrite each other in turn. When an agent has moved, its old connection is not known to be dead
//! yet. If the view shows the agent at another replica, this one claims it again only after it has received something
//! from the agent since. A dead connection delivers nothing.
//!
//! Two agents with one node name may connect to two replicas at the same moment. The first record in the store wins, and the
//! other replica ends its session.

use std::collections::HashMap;

use jiff::Timestamp;

use crate::fleet::Fleet;
use crate::keys::Keys;
use crate::names::{EnvName, NodeName, ReplicaId};
use crate::node::agent::AgentInfo;
use crate::replica::{PresenceRecord, are_different_agents};
use crate::txn::{Guard, Op, Revision, Txn};

/// Nodes per transaction. Each takes a guard and an operation, and etcd allows 128 of either.
pub const BATCH: usize = 64;

/// A session of a local agent.
#[derive(Clone, Debug)]
pub struct LocalSession {
    pub since: Timestamp,
    /// Revision of the view when something was last received from the agent.
    pub heard_at: Revision,
    /// Id of the agent; see [`PresenceRecord::holder`].
    pub holder: Option<String>,
    pub agent: Option<AgentInfo>,
}

/// A call of an agent that cron starts. It has ended, and may have been shorter than a round of writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedCall {
    pub ended: Timestamp,
    pub agent: AgentInfo,
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
    /// Connected here, while a different agent of the node is connected to another replica. These sessions end.
    pub duplicates: Vec<NodeName>,
}

/// Compares the view with the local sessions.
pub fn plan(
    fleet: &Fleet,
    me: &ReplicaId,
    here: &HashMap<NodeName, LocalSession>,
    silent_since: impl Fn(&NodeName) -> Timestamp,
    ended_calls: &HashMap<NodeName, EndedCall>,
) -> PresencePlan {
    let mut plan = PresencePlan::default();
    for (name, node, _) in fleet.recorded() {
        let Some(session) = here.get(name) else { continue };
        let shown = node.presence.as_ref();
        match shown.and_then(|(presence, at)| Some((presence.replica.as_ref()?, presence, *at))) {
            Some((replica, presence, _))
                if replica == me && presence.holder == session.holder && presence.agent == session.agent =>
            {
                continue;
            }
            Some((replica, ..)) if replica == me => {}
            Some((replica, presence, _))
                if fleet.replicas().contains_key(replica)
                    && are_different_agents(presence.holder.as_deref(), session.holder.as_deref()) =>
            {
                plan.duplicates.push(name.clone());
                continue;
            }
            Some((_, _, at)) if at > session.heard_at => {
                plan.contested.push(name.clone());
                continue;
            }
            Some(_) | None => {}
        }
        let (replica, holder, agent) = (Some(me.clone()), session.holder.clone(), session.agent.clone());
        let record = PresenceRecord { replica, since: session.since, holder, refused: None, agent };
        plan.writes.push(PresenceWrite { node: name.clone(), seen: shown.map(|(_, at)| *at), record: Some(record) });
    }
    for (name, call) in ended_calls {
        let Some(node) = fleet.get(name).filter(|node| node.record.is_some()) else { continue };
        let shown = node.presence.as_ref();
        let is_known = |presence: &PresenceRecord| presence.replica.is_some() || presence.since >= call.ended;
        if here.contains_key(name) || shown.is_some_and(|(presence, _)| is_known(presence)) {
            continue;
        }
        let record = PresenceRecord { since: call.ended, agent: Some(call.agent.clone()), ..PresenceRecord::default() };
        plan.writes.push(PresenceWrite { node: name.clone(), seen: shown.map(|(_, at)| *at), record: Some(record) });
    }
    for (name, node) in fleet.nodes() {
        let Some((PresenceRecord { replica: Some(replica), agent, .. }, at)) = &node.presence else { continue };
        if replica != me || (here.contains_key(name) && node.record.is_some()) {
            continue;
        }
        let silent = PresenceRecord { since: silent_since(name), agent: agent.clone(), ..PresenceRecord::default() };
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
            let record = PresenceRecord { replica: replica.map(id), since: at(5), ..PresenceRecord::default() };
            put(keys.presence(&web1), serde_json::to_vec(&record).unwrap(), revision);
        }
        fleet
    }

    #[test]
    fn presence_writes_only_differences() {
        let web1 = NodeName::new("web1").unwrap();
        let mine = || Some(PresenceRecord { replica: Some(id("me")), since: at(9), ..PresenceRecord::default() });
        let silent = || Some(PresenceRecord { since: at(7), ..PresenceRecord::default() });
        let write = |seen: Option<u64>, record| PresencePlan {
            writes: vec![PresenceWrite { node: web1.clone(), seen: seen.map(Revision), record }],
            ..PresencePlan::default()
        };
        let contested = || PresencePlan { contested: vec![web1.clone()], ..PresencePlan::default() };
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
            let session =
                |revision| LocalSession { since: at(9), heard_at: Revision(revision), holder: None, agent: None };
            let here = received.map(|revision| (web1.clone(), session(revision))).into_iter().collect();
            assert_eq!(
                plan(&fleet(designed, presence), &id("me"), &here, |_| at(7), &HashMap::new()),
                expected,
                "{case}"
            );
        }
    }

    #[test]
    fn different_agent_at_a_live_replica_ends_the_session() {
        let web1 = NodeName::new("web1").unwrap();
        let planned = |replica: &str, live: bool, recorded: Option<&str>, holder: Option<&str>| {
            let mut fleet = fleet(true, None);
            let keys = Keys::new(&fleet.env);
            let mut put = |key: String, value: Vec<u8>, at: u64| {
                let (_, parsed) = keys::parse(&key).unwrap();
                let change = KeyChange { key: &key, value: Some(&value), revision: Revision(at) };
                fleet.apply(Revision(at), [(change, parsed)]);
            };
            if live {
                let text = r#"{"url":"http://b","host":"b","pid":1,"version":"1","since":"2026-11-15T10:00:00Z",
                    "blobs":{"directory":"/b","nonce":"n"}}"#;
                put(keys.replica(&id(replica)), text.as_bytes().to_vec(), 2);
            }
            let holder_text = recorded.map(str::to_owned);
            let record = PresenceRecord {
                replica: Some(id(replica)),
                since: at(5),
                holder: holder_text,
                ..PresenceRecord::default()
            };
            put(keys.presence(&web1), serde_json::to_vec(&record).unwrap(), 3);
            let session =
                LocalSession { since: at(9), heard_at: Revision(9), holder: holder.map(str::to_owned), agent: None };
            let plan = plan(&fleet, &id("me"), &[(web1.clone(), session)].into(), |_| at(7), &HashMap::new());
            (plan.writes.len(), plan.duplicates.len())
        };
        assert_eq!(planned("other", true, Some("a"), Some("b")), (0, 1));
        assert_eq!(planned("other", false, Some("a"), Some("b")), (1, 0), "its replica is gone");
        assert_eq!(planned("other", true, Some("a"), Some("a")), (1, 0), "the agent has moved");
        assert_eq!(planned("other", true, None, Some("a")), (1, 0), "an older agent");
        assert_eq!(planned("me", true, Some("a"), Some("b")), (1, 0), "another agent took over here");
        assert_eq!(planned("me", true, Some("a"), Some("a")), (0, 0));
    }

    #[test]
    fn short_calls_of_cron_are_recorded() {
        let web1 = NodeName::new("web1").unwrap();
        let every = jiff::SignedDuration::from_mins(30).try_into().ok();
        let agent = AgentInfo::new(Some("1.0"), 2, every).unwrap();
        let writes = |presence, ended: i64, connected: bool| {
            let call = EndedCall { ended: at(ended), agent: agent.clone() };
            let session =
                LocalSession { since: at(9), heard_at: Revision(9), holder: None, agent: Some(agent.clone()) };
            let here = connected.then(|| (web1.clone(), session)).into_iter().collect();
            let calls = [(web1.clone(), call)].into();
            let plan = plan(&fleet(true, presence), &id("me"), &here, |_| at(ended), &calls);
            plan.writes.into_iter().map(|write| (write.seen, write.record.unwrap())).collect::<Vec<_>>()
        };
        let called =
            |ended| PresenceRecord { since: at(ended), agent: Some(agent.clone()), ..PresenceRecord::default() };
        assert_eq!(writes(None, 9, false), [(None, called(9))], "the first call");
        assert_eq!(writes(Some((None, 3)), 9, false), [(Some(Revision(3)), called(9))], "the record is from second 5");
        assert_eq!(writes(Some((Some("me"), 3)), 9, false).len(), 1, "its session was written, and has ended");
        assert_eq!(writes(Some((Some("other"), 3)), 9, false), [], "it has called another replica since");
        assert!(writes(Some((None, 3)), 9, true)[0].1.replica.is_some(), "it is connected again");
    }

    #[test]
    fn batch_fits_into_a_transaction() {
        let env = EnvName::new("test").unwrap();
        let write = |number| PresenceWrite {
            node: NodeName::new(format!("web{number}")).unwrap(),
            seen: None,
            record: Some(PresenceRecord { replica: Some(id("me")), since: at(9), ..PresenceRecord::default() }),
        };
        let writes: Vec<PresenceWrite> = (1..=BATCH).map(write).collect();
        let txn = txn(&env, &writes).unwrap();
        assert!(txn.guards.len() <= 128 && txn.ops.len() <= 128);
    }
}
