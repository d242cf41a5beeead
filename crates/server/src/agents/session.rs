//! Sessions: one for each connected agent, with its lookups, its activity and the time of its last message.

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

use super::lookup_index::SeenLookups;

/// Connection of one agent.
#[derive(Debug)]
pub struct Session {
    pub env: EnvName,
    pub node: NodeName,
    pub since: Timestamp,
    /// Something that the agent may need has changed.
    pub wake: Notify,
    /// The agent is asked to move to another server.
    pub(super) move_away: Notify,
    /// The agent prefers another server.
    pub away: bool,
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
    pub(super) heard_at: Revision,
    /// Time of the last request to move to another server.
    pub(super) asked_to_move: Option<Instant>,
}

impl Session {
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
    pub fn heard_at(&self) -> Revision {
        self.state().heard_at
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
    pub away: bool,
}

/// The sessions, by environment and node.
#[derive(Debug, Default)]
pub(super) struct Sessions(HashMap<EnvName, HashMap<NodeName, Arc<Session>>>);

impl Sessions {
    pub(super) fn get(&self, env: &EnvName, node: &NodeName) -> Option<&Arc<Session>> {
        self.0.get(env)?.get(node)
    }

    /// Adds a session, and returns the one that it replaces.
    pub(super) fn insert(&mut self, session: Arc<Session>) -> Option<Arc<Session>> {
        self.0.entry(session.env.clone()).or_default().insert(session.node.clone(), session)
    }

    /// Removes a session; false if it is not there, or was replaced.
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

    /// The sessions of one environment.
    pub(super) fn in_env(&self, env: &EnvName) -> impl Iterator<Item = &Arc<Session>> {
        self.0.get(env).into_iter().flat_map(HashMap::values)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Session>> {
        self.0.values().flat_map(HashMap::values)
    }

    pub(super) fn len(&self) -> usize {
        self.0.values().map(HashMap::len).sum()
    }
}
