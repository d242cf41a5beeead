//! Whether a node's agent is connected, wherever that is: what a server sees itself, and what the others have written down.
//!
//! Since when an agent is away is told by the clock of the server that asks, wherever it saw it happen: another one's clock
//! may be wrong, and would have the node lost too early.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use crate::fleet::Fleet;
use crate::names::{EnvName, NodeName, ReplicaId};
use crate::node::liveness::Link;
use crate::txn::Revision;

/// Who went longer ago than this is forgotten, and its agents are silent since somebody asks: by then they have been lost
/// for long.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

/// What a server itself knows of the connection of a node's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalLink {
    Connected {
        since: Timestamp,
    },
    /// Not here, since it went or since this server began to listen.
    Not {
        since: Timestamp,
    },
}

/// Where a node's agent is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentLocation {
    Here,
    /// Only that replica knows what the agent does.
    Elsewhere(ReplicaId),
    Nowhere,
}

/// What a server has seen of others going away.
#[derive(Clone, Debug)]
pub struct LinkTracker {
    me: ReplicaId,
    listening: Timestamp,
    /// How far the view was when this server started: what was written before, it did not see happen.
    began: Revision,
    /// When this server saw that a replica is gone, by its own clock.
    gone: BTreeMap<ReplicaId, Timestamp>,
    /// When it saw that a node has become silent elsewhere, and by which revision of its key. One entry for each node
    /// that ever was.
    silent: HashMap<(EnvName, NodeName), (Revision, Timestamp)>,
    known: BTreeSet<ReplicaId>,
}

impl LinkTracker {
    /// The view must be complete: replicas that are gone already are known to be so since this server started.
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

    /// Whether a node's agent is connected, and to whom.
    pub fn link(&mut self, fleet: &Fleet, name: &NodeName, here: LocalLink, now: Timestamp) -> (Link, AgentLocation) {
        let silent_here = match here {
            LocalLink::Connected { since } => return (Link::Connected { since }, AgentLocation::Here),
            LocalLink::Not { since } => since,
        };
        let silent = |since| (Link::Silent { since }, AgentLocation::Nowhere);
        let presence = fleet.get(name).and_then(|node| node.presence.as_ref());
        let Some((presence, at)) = presence else { return silent(silent_here) };
        match &presence.replica {
            None => silent(self.silent_since(fleet, name, (presence.since, *at), silent_here, now)),
            // It has just gone, and that is not written yet.
            Some(replica) if *replica == self.me => silent(silent_here),
            Some(replica) if fleet.replicas().contains_key(replica) => {
                self.gone.remove(replica);
                (Link::Connected { since: presence.since }, AgentLocation::Elsewhere(replica.clone()))
            }
            // Noted here too, in case the question comes before anybody has looked.
            Some(replica) => silent(*self.gone.entry(replica.clone()).or_insert(now)),
        }
    }

    /// Notes which replicas live, and so the moment at which each goes.
    pub fn note(&mut self, live: BTreeSet<ReplicaId>, now: Timestamp) {
        self.gone.retain(|id, since| !live.contains(id) && now.duration_since(*since) < REMEMBERED);
        for id in self.known.difference(&live) {
            self.gone.entry(id.clone()).or_insert(now);
        }
        self.known = live;
    }

    /// Since when a node is silent of which that is written: by the clock of this server, if it saw it happen.
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
