//! Connection state of agents, on this replica and on the others.
//!
//! [`muster_core::replica::links`] decides; this supplies the sessions of this replica, the presence records of the others, and the
//! clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::names::{NodeName, ReplicaId};
use muster_core::node::liveness::Link;
use muster_core::replica::links::{AgentLocation as Place, LinkTracker, LocalLink};

use crate::agents::{Hub, Session};
use crate::clock::Clock;
use crate::view::View;

/// Replica that a node's agent is connected to.
#[derive(Clone, Debug)]
pub enum AgentLocation {
    Local(Arc<Session>),
    /// Only that replica knows the agent's activity.
    Remote(ReplicaId),
    Disconnected,
}

/// Connection of one agent.
#[derive(Clone, Debug)]
pub struct AgentLink {
    pub link: Link,
    pub at: AgentLocation,
}

/// Connections of all agents.
#[derive(Debug)]
pub struct Links {
    hub: Arc<Hub>,
    clock: Clock,
    absences: Mutex<LinkTracker>,
}

impl Links {
    /// The view must be complete. Replicas that are missing from it count as gone since the start of this server.
    pub fn new(me: ReplicaId, hub: Arc<Hub>, clock: Clock, view: &View) -> Self {
        let (listening, began) = (hub.listening_since(), view.revision().unwrap_or_default());
        let absences = LinkTracker::new(me, listening, began, view.fleets().values());
        Self { hub, clock, absences: Mutex::new(absences) }
    }

    /// The server's time, by which pauses end too.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns whether a node's agent is connected, and since when.
    pub fn link(&self, fleet: &Fleet, name: &NodeName) -> Link {
        match self.hub.here(&fleet.env, name) {
            // Called for thousands of nodes in one decision: the other replicas matter only for nodes without a session here.
            LocalLink::Connected { since } => Link::Connected { since },
            here @ LocalLink::Not { .. } => self.absences().link(fleet, name, here, self.clock.now()).0,
        }
    }

    /// Returns whether a node's agent is connected, and to which replica.
    pub fn agent(&self, fleet: &Fleet, name: &NodeName) -> AgentLink {
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

    /// Records when each replica leaves, for ever.
    pub async fn watch(&self, view: &View) {
        let mut servers = view.subscribe_servers();
        loop {
            servers.mark_unchanged();
            let live = view.fleets().values().flat_map(|fleet| fleet.replicas().keys().cloned()).collect();
            self.absences().observe_replicas(live, self.clock.now());
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
