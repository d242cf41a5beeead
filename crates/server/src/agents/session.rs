//! One agent's connection: what the agent has seen, what it does, and when it was last heard.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use muster_core::lookup::Lookups;
use muster_core::names::{EnvName, NodeName};
use muster_core::node::status::Activity;
use muster_core::txn::Revision;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::lookup_index::Seen;

/// One agent's connection.
#[derive(Debug)]
pub struct Session {
    pub env: EnvName,
    pub node: NodeName,
    pub since: Timestamp,
    pub wake: Notify,
    /// The agent is to go to another server.
    pub go: Notify,
    /// The agent would rather be at another server.
    pub away: bool,
    pub(super) joined: Instant,
    /// The same node has connected again, or the server stops: this stream ends.
    pub ended: CancellationToken,
    pub(super) told: Mutex<Told>,
}

#[derive(Debug)]
pub(super) struct Told {
    /// What the node's last run looked up and saw; none once the session has ended.
    pub(super) seen: Option<Arc<Seen>>,
    pub(super) activity: Activity,
    /// When the agent last said anything. It answers each ping, so this is never long ago for one that lives.
    pub(super) heard: Instant,
    /// How far the view was then.
    pub(super) heard_at: Revision,
    /// When it was asked to go to another server.
    pub(super) asked_to_go: Option<Instant>,
}

impl Session {
    /// What the node's last run looked up, with what it saw or was sent since.
    pub(crate) fn seen(&self) -> Option<Arc<Seen>> {
        self.told().seen.clone()
    }

    /// The keys that the node's last run looked up.
    pub fn looked_up(&self) -> Vec<String> {
        self.seen().map(|seen| seen.keys().map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Whether the node's last run looked a key up.
    pub fn has_looked_up(&self, key: &str) -> bool {
        self.seen().is_some_and(|seen| seen.keys().any(|known| known == key))
    }

    pub fn activity(&self) -> Activity {
        self.told().activity.clone()
    }

    /// How far the view was when the agent last said anything: what the view has shown since, it has not spoken against.
    pub fn heard_at(&self) -> Revision {
        self.told().heard_at
    }

    /// How long the agent has said nothing.
    pub fn unheard_for(&self) -> Duration {
        self.told().heard.elapsed()
    }

    /// How long the agent has been here.
    pub fn age(&self) -> Duration {
        self.joined.elapsed()
    }

    /// How long ago it was asked to go elsewhere, if ever.
    pub fn asked_to_go(&self) -> Option<Duration> {
        self.told().asked_to_go.map(|when| when.elapsed())
    }

    /// Asks the agent to go to another server. It need not know one.
    pub fn ask_to_go(&self) {
        self.told().asked_to_go = Some(Instant::now());
        self.go.notify_one();
    }

    pub(super) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an agent says of itself when it connects, as far as it is the hub's business.
#[derive(Clone, Debug, Default)]
pub struct JoinRequest {
    pub lookups: Lookups,
    pub activity: Activity,
    pub away: bool,
}

/// The sessions, by environment and node.
#[derive(Debug, Default)]
pub(super) struct Sessions(HashMap<EnvName, HashMap<NodeName, Arc<Session>>>);

impl Sessions {
    pub(super) fn get(&self, env: &EnvName, node: &NodeName) -> Option<&Arc<Session>> {
        self.0.get(env)?.get(node)
    }

    /// Adds one, and returns the one whose place it takes.
    pub(super) fn insert(&mut self, session: Arc<Session>) -> Option<Arc<Session>> {
        self.0.entry(session.env.clone()).or_default().insert(session.node.clone(), session)
    }

    /// Removes one; false if it is not there, or another one has its place.
    pub(super) fn remove(&mut self, session: &Arc<Session>) -> bool {
        let Some(there) = self.0.get_mut(&session.env) else { return false };
        if !there.get(&session.node).is_some_and(|current| Arc::ptr_eq(current, session)) {
            return false;
        }
        there.remove(&session.node);
        if there.is_empty() {
            self.0.remove(&session.env);
        }
        true
    }

    /// Those of one environment.
    pub(super) fn of(&self, env: &EnvName) -> impl Iterator<Item = &Arc<Session>> {
        self.0.get(env).into_iter().flat_map(HashMap::values)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.0.values().flat_map(HashMap::values)
    }

    pub(super) fn len(&self) -> usize {
        self.0.values().map(HashMap::len).sum()
    }
}
