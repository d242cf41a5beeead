//! Whether a node's agent is connected, wherever that is: what this server sees itself, and what the others say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::liveness::Link;
use muster_core::names::{NodeName, ReplicaId};

use crate::clock::Clock;
use crate::hub::{Hub, Session};
use crate::view::View;

/// Who went longer ago than this is forgotten, and its agents are silent since somebody asks: by then they have been lost
/// for long.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);

/// Where a node's agent is connected.
#[derive(Clone, Debug)]
pub enum Whereabouts {
    Here(Arc<Session>),
    /// Only that replica knows what the agent does.
    Elsewhere(ReplicaId),
    Nowhere,
}

#[derive(Clone, Debug)]
pub struct Contact {
    pub link: Link,
    pub at: Whereabouts,
}

#[derive(Debug)]
pub struct Links {
    me: ReplicaId,
    hub: Arc<Hub>,
    clock: Clock,
    /// When this server saw that a replica is gone, by its own clock.
    gone: Mutex<BTreeMap<ReplicaId, Timestamp>>,
}

impl Links {
    /// The view must be complete: replicas that are gone already are known to be so since this server started.
    pub fn new(me: ReplicaId, hub: Arc<Hub>, clock: Clock, view: &View) -> Self {
        let listening = hub.listening_since();
        let mut gone = BTreeMap::new();
        for fleet in view.fleets().values() {
            let named = fleet.nodes().filter_map(|(_, node)| node.presence.as_ref()?.0.replica.clone());
            gone.extend(named.filter(|id| !fleet.replicas().contains_key(id)).map(|id| (id, listening)));
        }
        Self { me, hub, clock, gone: Mutex::new(gone) }
    }

    /// Whether a node's agent is connected, and to whom.
    pub fn of(&self, fleet: &Fleet, name: &NodeName) -> Contact {
        if let Some(session) = self.hub.session(&fleet.env, name) {
            return Contact { link: Link::Connected { since: session.since }, at: Whereabouts::Here(session) };
        }
        let presence = fleet.get(name).and_then(|node| node.presence.as_ref()).map(|(presence, _)| presence);
        let silent = |since| Contact { link: Link::Silent { since }, at: Whereabouts::Nowhere };
        let Some(presence) = presence else { return silent(self.hub.silent_since(&fleet.env, name)) };
        match &presence.replica {
            None => silent(presence.since),
            // It has just gone, and that is not written yet.
            Some(replica) if *replica == self.me => silent(self.hub.silent_since(&fleet.env, name)),
            Some(replica) if fleet.replicas().contains_key(replica) => {
                self.gone().remove(replica);
                let link = Link::Connected { since: presence.since };
                Contact { link, at: Whereabouts::Elsewhere(replica.clone()) }
            }
            // Noted here too, in case the question comes before the watcher has looked.
            Some(replica) => silent(*self.gone().entry(replica.clone()).or_insert_with(|| self.clock.now())),
        }
    }

    /// Notes the moment at which each replica goes, for ever.
    pub async fn watch(&self, view: &View) {
        let mut servers = view.subscribe_servers();
        let mut known: BTreeSet<ReplicaId> = BTreeSet::new();
        loop {
            servers.mark_unchanged();
            let live: BTreeSet<ReplicaId> =
                view.fleets().values().flat_map(|fleet| fleet.replicas().keys().cloned()).collect();
            let now = self.clock.now();
            {
                let mut gone = self.gone();
                gone.retain(|id, since| !live.contains(id) && now.duration_since(*since) < REMEMBERED);
                known.difference(&live).for_each(|id| {
                    gone.entry(id.clone()).or_insert(now);
                });
            }
            known = live;
            if servers.changed().await.is_err() {
                return;
            }
        }
    }

    pub fn is_connected(&self, fleet: &Fleet, name: &NodeName) -> bool {
        matches!(self.of(fleet, name).link, Link::Connected { .. })
    }

    fn gone(&self) -> MutexGuard<'_, BTreeMap<ReplicaId, Timestamp>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
