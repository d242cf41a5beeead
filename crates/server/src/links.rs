//! Whether a node's agent is connected, wherever that is: what this server sees itself, and what the others say.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::liveness::Link;
use muster_core::names::{NodeName, ReplicaId};
use muster_core::txn::Revision;

use crate::clock::Clock;
use crate::hub::{Hub, Place, Session};
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
    /// How far the view was when this server started: what was written before, it did not see happen.
    began: Revision,
    /// When it saw that a node has become silent elsewhere, and by which revision of its key. One entry for each node
    /// that ever was.
    silent: Mutex<HashMap<Place, (Revision, Timestamp)>>,
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
        let began = view.revision().unwrap_or_default();
        Self { me, hub, clock, gone: Mutex::new(gone), began, silent: Mutex::default() }
    }

    /// By the server's clock, by which pauses end too.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether a node's agent is connected, and to whom.
    pub fn of(&self, fleet: &Fleet, name: &NodeName) -> Contact {
        if let Some(session) = self.hub.session(&fleet.env, name) {
            return Contact { link: Link::Connected { since: session.since }, at: Whereabouts::Here(session) };
        }
        let presence = fleet.get(name).and_then(|node| node.presence.as_ref());
        let silent = |since| Contact { link: Link::Silent { since }, at: Whereabouts::Nowhere };
        let Some((presence, at)) = presence else { return silent(self.hub.silent_since(&fleet.env, name)) };
        match &presence.replica {
            None => silent(self.silent_since(fleet, name, presence.since, *at)),
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

    /// Since when a node is silent of which that is written: by the clock of this server, if it saw it happen. Another
    /// one's clock may be wrong, and would have the node lost too early.
    fn silent_since(&self, fleet: &Fleet, name: &NodeName, written: Timestamp, at: Revision) -> Timestamp {
        if at <= self.began {
            return written.min(self.hub.listening_since());
        }
        let here = self.hub.silent_since(&fleet.env, name);
        if here == written {
            return here;
        }
        let mut silent = lock(&self.silent);
        match silent.get(&(fleet.env.clone(), name.clone())) {
            Some((known, since)) if *known == at => *since,
            Some(_) | None => {
                let now = self.clock.now();
                silent.insert((fleet.env.clone(), name.clone()), (at, now));
                now
            }
        }
    }

    pub fn is_connected(&self, fleet: &Fleet, name: &NodeName) -> bool {
        matches!(self.of(fleet, name).link, Link::Connected { .. })
    }

    fn gone(&self) -> MutexGuard<'_, BTreeMap<ReplicaId, Timestamp>> {
        lock(&self.gone)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
