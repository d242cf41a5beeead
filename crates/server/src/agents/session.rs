//! Connections of agents: one session for each agent of this replica, and the links of all agents.
//!
//! A session has the lookups, the activity and the time of the last message of its agent. [`muster_core::replica::links`] decides
//! which agents are connected; [`Links`] supplies the sessions of this replica, the presence records of the others, and the clock.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::fleet::changes::{ChangePosition, ChangedNodes};
use muster_core::lookup::Lookups;
use muster_core::names::{EnvName, NodeName, ReplicaId};
use muster_core::node::agent::AgentInfo;
use muster_core::node::liveness::Link;
use muster_core::node::status::Activity;
use muster_core::release::manifest::KeyId;
use muster_core::replica::links::{LinkLocation, LinkTracker, LocalLink};
use muster_core::txn::Revision;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agents::Hub;
use crate::app::Clock;
use crate::view::View;

use super::lookup_index::SeenLookups;

/// Connection of one agent.
#[derive(Debug)]
pub struct AgentSession {
    pub env: EnvName,
    pub node: NodeName,
    pub since: Timestamp,
    /// Something that the agent may need has changed.
    pub wake: Notify,
    /// The agent is asked to move to another server.
    pub(super) move_away: Notify,
    /// The agent prefers another server.
    pub prefers_other_server: bool,
    /// Id of the agent; see [`muster_core::replica::PresenceRecord::holder`].
    pub holder: Option<String>,
    /// Ids of the keys that the agent trusted when it connected.
    pub trusted: Vec<KeyId>,
    /// None for an older agent.
    pub agent: Option<AgentInfo>,
    pub(super) joined: Instant,
    /// Cancelled when the node connects again, or when the server stops: the stream ends.
    pub ended: CancellationToken,
    pub(super) state: Mutex<SessionState>,
}

/// Part of a session that changes.
#[derive(Debug)]
pub(super) struct SessionState {
    /// The lookups of the node's last run; none once the session has ended.
    pub(super) lookups: Option<Arc<SeenLookups>>,
    pub(super) activity: Activity,
    /// Time of the agent's last message. A live agent answers each ping.
    pub(super) last_message: Instant,
    /// Revision of the view at that time.
    pub(super) last_message_at: Revision,
    /// Time of the last request to move to another server.
    pub(super) asked_to_move: Option<Instant>,
}

impl AgentSession {
    /// The lookups of the node's last run, with the tags of the values that it saw or was sent since.
    pub(crate) fn lookups(&self) -> Option<Arc<SeenLookups>> {
        self.state().lookups.clone()
    }

    /// The keys that the node's last run looked up.
    pub fn looked_up(&self) -> Vec<String> {
        self.lookups().map(|seen| seen.keys().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Returns whether the node's last run looked up a key.
    pub fn has_looked_up(&self, key: &str) -> bool {
        self.lookups().is_some_and(|seen| seen.keys().any(|known| known == key))
    }

    pub fn activity(&self) -> Activity {
        self.state().activity.clone()
    }

    /// Revision of the view when the agent last sent a message. A newer presence record of another replica wins.
    pub fn last_message_at(&self) -> Revision {
        self.state().last_message_at
    }

    /// Time since the agent's last message.
    pub fn silent_for(&self) -> Duration {
        self.state().last_message.elapsed()
    }

    /// Age of the session.
    pub fn age(&self) -> Duration {
        self.joined.elapsed()
    }

    /// Time since the agent was asked to move to another server.
    pub fn asked_to_move(&self) -> Option<Duration> {
        self.state().asked_to_move.map(|when| when.elapsed())
    }

    /// Asks the agent to move to another server. An agent that knows no other stays.
    pub fn ask_to_move(&self) {
        self.state().asked_to_move = Some(Instant::now());
        self.move_away.notify_one();
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State of an agent that connects.
#[derive(Clone, Debug, Default)]
pub struct JoinRequest {
    pub lookups: Lookups,
    pub activity: Activity,
    pub prefers_other_server: bool,
    pub holder: Option<String>,
    pub trusted: Vec<KeyId>,
    pub agent: Option<AgentInfo>,
}

/// The sessions, by environment and node.
#[derive(Debug, Default)]
pub(super) struct Sessions(HashMap<EnvName, HashMap<NodeName, Arc<AgentSession>>>);

impl Sessions {
    pub(super) fn get(&self, env: &EnvName, node: &NodeName) -> Option<&Arc<AgentSession>> {
        self.0.get(env)?.get(node)
    }

    /// Adds a session, and returns the one that it replaces.
    pub(super) fn insert(&mut self, session: Arc<AgentSession>) -> Option<Arc<AgentSession>> {
        self.0.entry(session.env.clone()).or_default().insert(session.node.clone(), session)
    }

    /// Removes a session; false if it is not there, or was replaced.
    pub(super) fn remove(&mut self, session: &Arc<AgentSession>) -> bool {
        let Some(sessions) = self.0.get_mut(&session.env) else { return false };
        if !sessions.get(&session.node).is_some_and(|current| Arc::ptr_eq(current, session)) {
            return false;
        }
        sessions.remove(&session.node);
        if sessions.is_empty() {
            self.0.remove(&session.env);
        }
        true
    }

    pub(super) fn of_env(&self, env: &EnvName) -> Option<&HashMap<NodeName, Arc<AgentSession>>> {
        self.0.get(env)
    }

    /// The sessions of one environment.
    pub(super) fn in_env(&self, env: &EnvName) -> impl Iterator<Item = &Arc<AgentSession>> {
        self.0.get(env).into_iter().flat_map(HashMap::values)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<AgentSession>> {
        self.0.values().flat_map(HashMap::values)
    }

    pub(super) fn len(&self) -> usize {
        self.0.values().map(HashMap::len).sum()
    }
}

/// Replica that a node's agent is connected to.
#[derive(Clone, Debug)]
pub enum AgentConnection {
    Local(Arc<AgentSession>),
    /// Only that replica knows the agent's activity.
    Remote(ReplicaId),
    Disconnected,
}

/// Connection of one agent.
#[derive(Clone, Debug)]
pub struct AgentLink {
    pub link: Link,
    pub at: AgentConnection,
}

/// Connections of all agents.
#[derive(Debug)]
pub struct Links {
    hub: Arc<Hub>,
    clock: Clock,
    link_tracker: Mutex<LinkTracker>,
}

impl Links {
    /// The view must be complete. Replicas that are missing from it count as gone since the start of this server.
    pub fn new(me: ReplicaId, hub: Arc<Hub>, clock: Clock, view: &View) -> Self {
        let (listening, began) = (hub.listening_since(), view.revision().unwrap_or_default());
        let link_tracker = LinkTracker::new(me, listening, began, view.fleets().values());
        Self { hub, clock, link_tracker: Mutex::new(link_tracker) }
    }

    /// The server's time, by which pauses end too.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns whether a node's agent is connected, and since when.
    pub fn link(&self, fleet: &Fleet, name: &NodeName) -> Link {
        match self.hub.local_link(&fleet.env, name) {
            // Called for thousands of nodes in one decision: the other replicas matter only for nodes without a session here.
            LocalLink::Connected { since } => Link::Connected { since },
            local @ LocalLink::Not { .. } => self.link_tracker().link(fleet, name, local, self.clock.now()).0,
        }
    }

    /// Nodes whose connection to this replica has changed since a position. Other connections change with keys.
    pub(crate) fn changes(&self, env: &EnvName, since: Option<&ChangePosition>) -> ChangedNodes {
        self.hub.session_changes(env, since)
    }

    /// Those of the nodes whose agent is connected to no replica, and is not one of cron that is expected to call.
    pub fn silent<'a>(&self, fleet: &Fleet, nodes: impl Iterator<Item = &'a NodeName>) -> HashSet<&'a NodeName> {
        let not_here = self.hub.without_session(&fleet.env, nodes);
        not_here.into_iter().filter(|node| !self.link(fleet, node).is_live()).collect()
    }

    /// Returns whether a node's agent is connected, and to which replica.
    pub fn agent(&self, fleet: &Fleet, name: &NodeName) -> AgentLink {
        let session = self.hub.session(&fleet.env, name);
        let local = match &session {
            Some(session) => LocalLink::Connected { since: session.since },
            None => LocalLink::Not { since: self.hub.silent_since(&fleet.env, name) },
        };
        let (link, location) = self.link_tracker().link(fleet, name, local, self.clock.now());
        let at = match (location, session) {
            (LinkLocation::Here, Some(session)) => AgentConnection::Local(session),
            (LinkLocation::Elsewhere(replica), _) => AgentConnection::Remote(replica),
            (LinkLocation::Nowhere, _) | (LinkLocation::Here, None) => AgentConnection::Disconnected,
        };
        AgentLink { link, at }
    }

    /// Records when each replica leaves, forever.
    pub async fn watch(&self, view: &View) {
        let mut servers = view.subscribe_servers();
        loop {
            servers.mark_unchanged();
            let live = view.fleets().values().flat_map(|fleet| fleet.replicas().keys().cloned()).collect();
            self.link_tracker().observe_replicas(live, self.clock.now());
            if servers.changed().await.is_err() {
                return;
            }
        }
    }

    pub fn is_connected(&self, fleet: &Fleet, name: &NodeName) -> bool {
        matches!(self.link(fleet, name), Link::Connected { .. })
    }

    fn link_tracker(&self) -> MutexGuard<'_, LinkTracker> {
        self.link_tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
