//! Writes down which agents are connected to this replica, for the others: `presence/<node>`.
//!
//! Level-triggered: what the view shows is compared with the sessions that are here, and the difference is written, many
//! nodes in one transaction and a few times a second at most. A fleet that stays connected writes nothing.
//!
//! Two replicas never fight over a node. Its agent has moved, and the connection that it left is not known to be dead
//! yet: so when the view shows that another replica has the agent, this one claims it again only after it has *heard*
//! the agent since. From a dead connection nothing is heard.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName, ReplicaId};
use muster_core::replicas::PresenceRecord;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::{Outcome, Store};
use tokio::time::{Instant, sleep, sleep_until};

use super::membership::Membership;
use crate::hub::{Hub, Place};
use crate::view::View;

/// How many nodes one transaction takes: each is a guard and an operation, and etcd takes 128 of either.
const BATCH: usize = 64;
/// How many transactions are under way at once: a whole fleet that comes is written in a second or two.
const AT_ONCE: usize = 4;
/// One round takes in all that came and went within this.
const PACE: Duration = Duration::from_millis(250);
/// When the store does not take it, it is tried again after this.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Presence {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) view: Arc<View>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) membership: Arc<Membership>,
}

/// A connection as far as this is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    pub(crate) since: Timestamp,
    /// How far the view was when the agent was last heard.
    pub(crate) heard_at: Revision,
}

/// One key to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) node: NodeName,
    /// The revision of the key that this was decided on; none if it was not there.
    pub(crate) seen: Option<Revision>,
    /// None for a node that has left the design: its key goes.
    pub(crate) record: Option<PresenceRecord>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) writes: Vec<Write>,
    /// Connected here, and another replica says the same: their next word decides.
    pub(crate) contested: Vec<NodeName>,
}

/// Compares what the view shows with who is here.
pub(crate) fn plan(
    fleet: &Fleet,
    me: &ReplicaId,
    here: &HashMap<NodeName, Here>,
    silent_since: impl Fn(&NodeName) -> Timestamp,
) -> Plan {
    let mut plan = Plan::default();
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
        plan.writes.push(Write { node: name.clone(), seen: shown.map(|(_, at)| at), record: Some(record) });
    }
    for (name, node) in fleet.nodes() {
        let Some((PresenceRecord { replica: Some(replica), .. }, at)) = &node.presence else { continue };
        if replica != me || (here.contains_key(name) && node.record.is_some()) {
            continue;
        }
        let silent = PresenceRecord { replica: None, since: silent_since(name) };
        let record = node.record.is_some().then_some(silent);
        plan.writes.push(Write { node: name.clone(), seen: Some(*at), record });
    }
    plan
}

/// What a round has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    Quiet,
    Wrote,
    Failed,
}

impl Presence {
    /// Keeps the store's word on this replica's agents true, for ever.
    pub async fn run(&self) {
        let mut connections = self.hub.subscribe();
        let mut servers = self.view.subscribe_servers();
        let mut members = self.membership.subscribe();
        loop {
            connections.mark_unchanged();
            servers.mark_unchanged();
            members.mark_unchanged();
            let began = Instant::now();
            match self.round().await {
                Round::Quiet => {
                    tokio::select! {
                        _ = connections.changed() => {}
                        _ = servers.changed() => {}
                        _ = members.changed() => {}
                    }
                }
                Round::Wrote => {}
                Round::Failed => sleep(AGAIN).await,
            }
            // What comes alone is written at once; what comes in a crowd, a few times a second.
            sleep_until(began + PACE).await;
        }
    }

    async fn round(&self) -> Round {
        if self.membership.current().is_none() {
            return Round::Quiet;
        }
        let envs: Vec<EnvName> = self.view.fleets().keys().cloned().collect();
        let mut contested: HashSet<Place> = HashSet::new();
        let mut txns = Vec::new();
        for env in envs {
            let plan = self.plan(&env);
            contested.extend(plan.contested.into_iter().map(|node| (env.clone(), node)));
            for writes in plan.writes.chunks(BATCH) {
                match txn(&env, writes) {
                    Ok(txn) => txns.push(txn),
                    Err(error) => tracing::error!(%error, "who is connected here cannot be put into words"),
                }
            }
        }
        self.hub.contest(contested);
        if txns.is_empty() {
            return Round::Quiet;
        }
        let commits = stream::iter(txns).map(|txn| self.commit(txn)).buffer_unordered(AT_ONCE);
        let taken: Vec<bool> = commits.collect().await;
        if taken.into_iter().all(|taken| taken) { Round::Wrote } else { Round::Failed }
    }

    fn plan(&self, env: &EnvName) -> Plan {
        let sessions = self.hub.sessions(env);
        let here = sessions
            .iter()
            .map(|session| (session.node.clone(), Here { since: session.since, heard_at: session.heard_at() }));
        let here = here.collect();
        let fleets = self.view.fleets();
        let Some(fleet) = fleets.get(env) else { return Plan::default() };
        plan(fleet, self.membership.id(), &here, |node| self.hub.silent_since(env, node))
    }

    /// Commits one batch; whether the store has taken it or has said why not.
    async fn commit(&self, txn: Txn) -> bool {
        match self.store.commit(txn).await {
            // The next round decides on what this has written.
            Ok(Outcome::Committed { revision }) => self.view.reach(revision).await.is_ok(),
            // One of the nodes was claimed elsewhere: the next round decides on what the view shows then.
            Ok(Outcome::Refused { revision, .. }) => self.view.reach(revision).await.is_ok(),
            Err(error) => {
                tracing::debug!(%error, "who is connected here cannot be written down");
                false
            }
        }
    }
}

fn txn(env: &EnvName, writes: &[Write]) -> Result<Txn, serde_json::Error> {
    let keys = Keys::of(env);
    let mut txn = Txn::new();
    for write in writes {
        let key = keys.presence(&write.node);
        txn.guards.push(Guard::seen(key.clone(), write.seen));
        txn.ops.push(match &write.record {
            Some(record) => Op::put_json(key, record)?,
            None => Op::delete(key),
        });
    }
    Ok(txn)
}

#[cfg(test)]
mod tests {
    use muster_core::fleet::KeyChange;
    use muster_core::keys;

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
        let (keys, mut fleet) = (Keys::of(&env), Fleet::new(env));
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
        let write = |seen: Option<u64>, record| Plan {
            writes: vec![Write { node: web1.clone(), seen: seen.map(Revision), record }],
            contested: Vec::new(),
        };
        let contested = || Plan { writes: Vec::new(), contested: vec![web1.clone()] };
        // (what, in the design, what the store says, heard here when the view was at)
        let table = [
            ("a new agent", true, None, Some(1), write(None, mine())),
            ("known to be here", true, Some((Some("me"), 3)), Some(1), Plan::default()),
            ("it was silent", true, Some((None, 3)), Some(1), write(Some(3), mine())),
            ("it came here from another one", true, Some((Some("other"), 3)), Some(4), write(Some(3), mine())),
            ("it was heard when the view showed it", true, Some((Some("other"), 3)), Some(3), write(Some(3), mine())),
            ("it went to another one", true, Some((Some("other"), 3)), Some(2), contested()),
            ("its connection here has ended", true, Some((Some("me"), 3)), None, write(Some(3), silent())),
            ("it is elsewhere", true, Some((Some("other"), 3)), None, Plan::default()),
            ("it is silent", true, Some((None, 3)), None, Plan::default()),
            ("nobody has seen it", true, None, None, Plan::default()),
            ("it has left the design", false, Some((Some("me"), 3)), Some(4), write(Some(3), None)),
            ("it has left the design, elsewhere", false, Some((Some("other"), 3)), None, Plan::default()),
            ("not of the design", false, None, Some(4), Plan::default()),
        ];
        for (what, designed, presence, heard, expected) in table {
            let here = heard.map(|heard| (web1.clone(), Here { since: at(9), heard_at: Revision(heard) }));
            let here = here.into_iter().collect();
            assert_eq!(plan(&fleet(designed, presence), &id("me"), &here, |_| at(7)), expected, "{what}");
        }
    }

    #[test]
    fn a_batch_stays_within_what_a_store_takes() {
        let env = EnvName::new("test").unwrap();
        let write = |number| Write {
            node: NodeName::new(format!("web{number}")).unwrap(),
            seen: None,
            record: Some(PresenceRecord { replica: Some(id("me")), since: at(9) }),
        };
        let writes: Vec<Write> = (1..=BATCH).map(write).collect();
        let txn = txn(&env, &writes).unwrap();
        assert!(txn.guards.len() <= 128 && txn.ops.len() <= 128);
    }
}
