//! Connection of a node's agent to any replica: local sessions, and the presence records of other replicas.
//!
//! The begin of a silence is measured by the clock of the observing server where it observed the event. Another
//! server's clock may be wrong and would make nodes lost too early.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use crate::fleet::{Fleet, Node};
use crate::names::{EnvName, NodeName, ReplicaId};
use crate::node::liveness::Link;
use crate::txn::Revision;

/// Gone replicas are forgotten after this time. Their agents were lost long before.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

/// Connection of a node's agent to this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalLink {
    Connected {
        since: Timestamp,
    },
    /// Not connected here, since the connection ended or this server began to listen.
    Not {
        since: Timestamp,
    },
}

/// Location of an agent's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkLocation {
    Here,
    /// Connected to another replica, which alone knows the agent's activity.
    Elsewhere(ReplicaId),
    Nowhere,
}

/// Tracks when replicas and remote agents disappeared, as observed by this server.
#[derive(Clone, Debug)]
pub struct LinkTracker {
    me: ReplicaId,
    listening: Timestamp,
    /// Revision of the view when this server started. It did not observe earlier changes.
    began: Revision,
    /// Time at which this server observed that a replica is gone, by its own clock.
    gone: BTreeMap<ReplicaId, Timestamp>,
    /// Time at which it observed that a node became silent elsewhere, with the revision of the record. One entry per
    /// node.
    silent: HashMap<(EnvName, NodeName), (Revision, Timestamp)>,
    known: BTreeSet<ReplicaId>,
}

impl LinkTracker {
    /// Requires a complete view. Replicas that are already gone count as gone since this server started.
    pub fn new<'a>(
        me: ReplicaId,
        listening: Timestamp,
        began: Revision,
        fleets: impl IntoIterator<Item = &'a Fleet>,
    ) -> Self {
        let mut gone = BTreeMap::new();
        for fleet in fleets {
            let named = fleet.nodes().filter_map(|(_, node)| node.presence.as_ref()?.0.replica.clone());
            gone.extend(named.filter(|id| !fleet.replicas().contains_key(id)).map(|id| (id, listening)));
        }
        Self { me, listening, began, gone, silent: HashMap::new(), known: BTreeSet::new() }
    }

    /// Connection of a node's agent, and its location.
    pub fn link(&mut self, fleet: &Fleet, name: &NodeName, here: LocalLink, now: Timestamp) -> (Link, LinkLocation) {
        let silent_here = match here {
            LocalLink::Connected { since } => return (Link::Connected { since }, LinkLocation::Here),
            LocalLink::Not { since } => since,
        };
        let node = fleet.get(name);
        let every = node.and_then(Node::call_interval);
        let listening = self.listening;
        let silent = |since| (Link::without_connection(since, every, listening, now), LinkLocation::Nowhere);
        let Some((presence, at)) = node.and_then(|node| node.presence.as_ref()) else {
            // It was never connected. The clock of the server that registered it may be ahead.
            let created = node.and_then(|node| node.record.as_ref()?.created).map(|created| created.min(now));
            return silent(created.map_or(silent_here, |created| created.max(silent_here)));
        };
        match &presence.replica {
            None => silent(self.silent_since(fleet, name, (presence.since, *at), silent_here, now)),
            // The connection has just ended, and that is not written yet.
            Some(replica) if *replica == self.me => silent(silent_here),
            Some(replica) if fleet.replicas().contains_key(replica) => {
                self.gone.remove(replica);
                (Link::Connected { since: presence.since }, LinkLocation::Elsewhere(replica.clone()))
            }
            // Recorded here too, in case a link is read before the replicas are observed.
            Some(replica) => silent(*self.gone.entry(replica.clone()).or_insert(now)),
        }
    }

    /// Records the live replicas, and the time at which each disappears.
    pub fn observe_replicas(&mut self, live: BTreeSet<ReplicaId>, now: Timestamp) {
        self.gone.retain(|id, since| !live.contains(id) && now.duration_since(*since) < REMEMBERED);
        for id in self.known.difference(&live) {
            self.gone.entry(id.clone()).or_insert(now);
        }
        self.known = live;
    }

    /// Begin of a recorded silence, by this server's clock if it observed the change.
    fn silent_since(
        &mut self,
        fleet: &Fleet,
        name: &NodeName,
        (written, at): (Timestamp, Revision),
        here: Timestamp,
        now: Timestamp,
    ) -> Timestamp {
        if at <= self.began {
            return written.min(self.listening);
        }
        if here == written {
            return here;
        }
        let place = (fleet.env.clone(), name.clone());
        match self.silent.get(&place) {
            Some((known, since)) if *known == at => *since,
            Some(_) | None => {
                self.silent.insert(place, (at, now));
                now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::KeyChange;
    use crate::keys::{self, Keys};

    #[test]
    fn new_node_is_unreachable_since_its_registration() {
        let env = EnvName::new("lab").unwrap();
        let (keys, mut fleet) = (Keys::new(&env), Fleet::new(env));
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut tracker = LinkTracker::new(ReplicaId::new("ctl1-0a1b2c").unwrap(), at(100), Revision(0), []);
        for (name, created, since) in
            [("web1", None, 100), ("web2", Some(50), 100), ("web3", Some(150), 150), ("web4", Some(999), 200)]
        {
            let node = NodeName::new(name).unwrap();
            let record = serde_json::json!({"role": "web", "failure_domain": "a", "created": created.map(at)});
            let (key, value) = (keys.node(&node), serde_json::to_vec(&record).unwrap());
            let change = KeyChange { key: &key, value: Some(&value), revision: Revision(1) };
            fleet.apply(Revision(1), [(change, keys::parse(&key).unwrap().1)]);
            let (link, _) = tracker.link(&fleet, &node, LocalLink::Not { since: at(100) }, at(200));
            assert_eq!(link, Link::Silent { since: at(since) }, "{name}");
        }
    }
}
