//! Whether a node's agent is connected, wherever that is: what this server sees itself, and what the others say.
//! [`muster_core::replica::links`] decides; this knows the connections and the clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::names::{NodeName, ReplicaId};
use muster_core::node::liveness::Link;
use muster_core::replica::links::{AgentLocation as Place, LinkTracker, LocalLink};

use crate::agents::{Hub, Session};
use crate::clock::Clock;
use crate::view::View;

/// Where a node's agent is connected.
#[derive(Clone, Debug)]
pub enum AgentLocation {
    Local(Arc<Session>),
    /// Only that replica knows what the agent does.
    Remote(ReplicaId),
    Disconnected,
}

#[derive(Clone, Debug)]
pub struct AgentLink {
    pub link: Link,
    pub at: AgentLocation,
}

#[derive(Debug)]
pub struct Links {
    hub: Arc<Hub>,
    clock: Clock,
    absences: Mutex<LinkTracker>,
}

impl Links {
    /// The view must be complete: replicas that are gone already are known to be so since this server started.
    pub fn new(me: ReplicaId, hub: Arc<Hub>, clock: Clock, view: &View) -> Self {
        let (listening, began) = (hub.listening_since(), view.revision().unwrap_or_default());
        let absences = LinkTracker::new(me, listening, began, view.fleets().values());
        Self { hub, clock, absences: Mutex::new(absences) }
    }

    /// By the server's clock, by which pauses end too.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether a node's agent is connected.
    pub fn link(&self, fleet: &Fleet, name: &NodeName) -> Link {
        match self.hub.here(&fleet.env, name) {
            // Asked of thousands of nodes for one decision: what others say matters only for those that are not here.
            LocalLink::Connected { since } => Link::Connected { since },
            here @ LocalLink::Not { .. } => self.absences().link(fleet, name, here, self.clock.now()).0,
        }
    }

    /// Whether a node's agent is connected, and to whom.
    pub fn of(&self, fleet: &Fleet, name: &NodeName) -> AgentLink {
        let session = self.hub.session(&fleet.env, name);
        let here = match &session {
            Some(session) => LocalLink::Connected { since: session.since },
            None => LocalLink::Not { since: self.hub.silent_since(&fleet.env, name) },
        };
        let (link, place) = self.absences().link(fleet, name, here, self.clock.now());
        let at = match (place, session) {
            (Place::Here, Some(session)) => AgentLocation::Local(session),
            (Place::Elsewhere(replica), _) => AgentLocation::Remote(replica),
            (Place::Nowhere, _) | (Place::Here, None) => AgentLocation::Disconnected,
        };
        AgentLink { link, at }
    }

    /// Notes the moment at which each replica goes, for ever.
    pub async fn watch(&self, view: &View) {
        let mut servers = view.subscribe_servers();
        loop {
            servers.mark_unchanged();
            let live = view.fleets().values().flat_map(|fleet| fleet.replicas().keys().cloned()).collect();
            self.absences().note(live, self.clock.now());
            if servers.changed().await.is_err() {
                return;
            }
        }
    }

    pub fn is_connected(&self, fleet: &Fleet, name: &NodeName) -> bool {
        matches!(self.link(fleet, name), Link::Connected { .. })
    }

    fn absences(&self) -> MutexGuard<'_, LinkTracker> {
        self.absences.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
