//! Registry of the connected agents, and the wake-ups of their streams.
//!
//! A session holds the tags of the values that its node's last run looked up. A change of the view wakes exactly the sessions
//! that looked up a changed key. A woken stream compares its tags with the view, and sends what is new. A wake-up is a hint:
//! too many of them are harmless, because the comparison alone decides what is sent.

#[cfg(test)]
#[path = "scale_tests.rs"]
mod scale_tests;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use muster_core::fleet::changes::{ChangeLog, ChangePosition, ChangedNodes};
use muster_core::fleet::{Fleet, Node};
use muster_core::lookup::Lookups;
use muster_core::names::{EnvName, NodeName};
use muster_core::node::status::Activity;
use muster_core::replica::are_different_agents;
use muster_core::replica::links::LocalLink;
use muster_core::replica::presence::EndedCall;
use muster_core::txn::Revision;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::live_logs::LiveLogs;
use super::lookup_index::{Comparisons, LookupDiff, LookupIndex, SeenLookups};
use super::session::{AgentSession, JoinRequest, SessionState, Sessions};
use crate::app::Clock;
use crate::view::{View, ViewChange};

/// Streams that are woken before other tasks have their turn: less than a millisecond of work.
const WOKEN_TOGETHER: usize = 64;

/// A node of an environment.
pub(crate) type EnvNode = (EnvName, NodeName);

/// Connected agents of this replica.
#[derive(Debug)]
pub struct Hub {
    clock: Clock,
    listening_since: Timestamp,
    inner: Mutex<Inner>,
    stop: CancellationToken,
    /// Revision of the view, recorded with each message of an agent.
    view: watch::Receiver<Option<Revision>>,
    /// Changes when a session begins or ends, or an agent's activity changes.
    changed: watch::Sender<u64>,
    opened: AtomicU64,
    ended: AtomicU64,
    /// Logs of the runs in progress.
    pub(crate) live_logs: Arc<LiveLogs>,
    comparisons: Comparisons,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: Sessions,
    /// The lookups of the nodes' last runs.
    lookups: HashMap<EnvName, LookupIndex>,
    silent_since: HashMap<EnvName, HashMap<NodeName, Timestamp>>,
    /// Nodes whose session began or ended last.
    session_changes: HashMap<EnvName, ChangeLog>,
    /// The last calls here of agents that cron starts. A call may end before its presence is written.
    ended_calls: HashMap<EnvName, HashMap<NodeName, EndedCall>>,
    /// Nodes with a session here that another replica claims too. Their next message decides which replica is right.
    contested: HashSet<EnvNode>,
}

/// Ends the session when the stream is dropped.
#[derive(Debug)]
pub struct SessionGuard {
    pub session: Arc<AgentSession>,
    hub: Arc<Hub>,
}

impl SessionGuard {
    /// Compares the lookups of the node with the view; none if a newer session has replaced this one.
    pub(crate) fn compare(&self, fleet: &Fleet, node: Option<&Node>) -> Option<(Arc<SeenLookups>, Arc<LookupDiff>)> {
        let seen = self.session.lookups()?;
        let diff = self.hub.comparisons.compare(fleet, &self.session.node, node, &seen);
        Some((seen, diff))
    }

    /// Sets the activity of the agent, from a message on its stream.
    pub(crate) fn set_activity(&self, activity: Activity) {
        self.hub.set_activity_of(&self.session, activity);
    }

    /// Records that the node was sent the current values. If it has reported another run meanwhile, the lookups of that run
    /// stay, and are compared again.
    pub(crate) fn sent(&self, before: &Arc<SeenLookups>, now: Arc<SeenLookups>) {
        let mut inner = self.hub.inner();
        let is_same = self.session.lookups().is_some_and(|seen| Arc::ptr_eq(&seen, before));
        if is_same && !self.session.ended.is_cancelled() {
            inner.remove_lookups(&self.session);
            let index = inner.lookups.entry(self.session.env.clone()).or_default();
            self.session.state().lookups = Some(index.add_shared(&self.session.node, now));
        }
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.hub.leave(&self.session);
        self.hub.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl Hub {
    /// Makes a hub without sessions. All streams end when `stop` is cancelled.
    pub fn new(clock: Clock, stop: CancellationToken, view: &View) -> Self {
        let listening_since = clock.now();
        Self {
            clock,
            listening_since,
            inner: Mutex::default(),
            stop,
            view: view.subscribe(),
            changed: watch::Sender::new(0),
            opened: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            live_logs: Arc::default(),
            comparisons: Comparisons::default(),
        }
    }

    /// Returns when the server stops: long requests must end then.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    pub fn listening_since(&self) -> Timestamp {
        self.listening_since
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Number of connected agents.
    pub fn connected(&self) -> usize {
        self.inner().sessions.len()
    }

    /// Number of streams that were opened, and of those that have ended.
    pub fn streams(&self) -> (u64, u64) {
        let ended = self.ended.load(Ordering::Relaxed);
        (self.opened.load(Ordering::Relaxed), ended)
    }

    /// Begins the session of an agent. An older session of the same agent ends. None if a different agent of the node is
    /// connected.
    pub fn join(self: &Arc<Self>, env: &EnvName, node: &NodeName, request: JoinRequest) -> Option<SessionGuard> {
        let JoinRequest { lookups, activity, prefers_other_server, holder, trusted, agent } = request;
        let session = Arc::new(AgentSession {
            env: env.clone(),
            node: node.clone(),
            since: self.clock.now(),
            wake: Notify::new(),
            move_away: Notify::new(),
            prefers_other_server,
            holder,
            trusted,
            agent,
            joined: Instant::now(),
            ended: self.stop.child_token(),
            state: Mutex::new(SessionState {
                lookups: None,
                activity,
                last_message: Instant::now(),
                last_message_at: self.view_at(),
                asked_to_move: None,
            }),
        });
        let mut inner = self.inner();
        // Compared under the lock: of two agents that open a stream at the same time, one joins.
        if inner.has_different_agent(env, node, session.holder.as_deref()) {
            return None;
        }
        if let Some(old) = inner.sessions.insert(session.clone()) {
            inner.remove_lookups(&old);
            old.ended.cancel();
        }
        if let Some(silent) = inner.silent_since.get_mut(env) {
            silent.remove(node);
        }
        inner.set_lookups(&session, lookups);
        inner.record_session_change(env, node);
        drop(inner);
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.changed();
        Some(SessionGuard { session, hub: self.clone() })
    }

    /// True if a different agent of the node is connected here. The stream of one that is gone ends by itself, when it has not
    /// answered pings.
    pub(crate) fn has_different_agent(&self, env: &EnvName, node: &NodeName, holder: Option<&str>) -> bool {
        self.inner().has_different_agent(env, node, holder)
    }

    /// Ends the sessions of these nodes: a different agent is connected to another replica.
    pub(crate) fn end_duplicates(&self, env: &EnvName, nodes: &[NodeName]) {
        for session in nodes.iter().filter_map(|node| self.session(env, node)) {
            tracing::warn!(%env, node = %session.node, "another agent with its name is connected to another replica: its stream ends");
            session.ended.cancel();
        }
    }

    fn leave(&self, session: &Arc<AgentSession>) {
        let mut inner = self.inner();
        if inner.sessions.remove(session) {
            inner.remove_lookups(session);
            let silent = inner.silent_since.entry(session.env.clone()).or_default();
            let now = self.clock.now();
            silent.insert(session.node.clone(), now);
            inner.record_session_change(&session.env, &session.node);
            let calls = inner.ended_calls.entry(session.env.clone()).or_default();
            match session.agent.clone().filter(|agent| agent.every.is_some()) {
                Some(agent) => drop(calls.insert(session.node.clone(), EndedCall { ended: now, agent })),
                None => drop(calls.remove(&session.node)),
            }
            drop(inner);
            self.live_logs.agent_gone(&session.env, &session.node);
            self.changed();
        }
    }

    /// Sets the lookups of a node's last run, from its report. The stream compares them with the view.
    pub fn set_lookups(&self, env: &EnvName, node: &NodeName, lookups: Lookups) {
        let mut inner = self.inner();
        if let Some(session) = inner.sessions.get(env, node).cloned() {
            inner.set_lookups(&session, lookups);
            session.wake.notify_one();
            drop(inner);
            self.message_received(&session);
        }
    }

    /// Sets the activity of an agent, from its answer to a ping or from a change.
    pub fn set_activity(&self, env: &EnvName, node: &NodeName, activity: Activity) {
        if let Some(session) = self.session(env, node) {
            self.set_activity_of(&session, activity);
        }
    }

    fn set_activity_of(&self, session: &AgentSession, activity: Activity) {
        self.message_received(session);
        // Most answers to pings repeat the known activity: those wake no controller.
        let before = std::mem::replace(&mut session.state().activity, activity.clone());
        if before != activity {
            self.changed();
        }
    }

    fn message_received(&self, session: &AgentSession) {
        {
            let mut state = session.state();
            state.last_message = Instant::now();
            state.last_message_at = self.view_at();
        }
        let node = (session.env.clone(), session.node.clone());
        if self.inner().contested.contains(&node) {
            self.changed();
        }
    }

    fn view_at(&self) -> Revision {
        self.view.borrow().unwrap_or_default()
    }

    /// Sets the nodes that another replica claims too: their next message is a change.
    pub(crate) fn set_contested(&self, nodes: HashSet<EnvNode>) {
        self.inner().contested = nodes;
    }

    /// All sessions.
    pub fn all_sessions(&self) -> Vec<Arc<AgentSession>> {
        self.inner().sessions.all().cloned().collect()
    }

    /// The sessions of an environment.
    pub fn sessions(&self, env: &EnvName) -> Vec<Arc<AgentSession>> {
        self.inner().sessions.in_env(env).cloned().collect()
    }

    pub fn session(&self, env: &EnvName, node: &NodeName) -> Option<Arc<AgentSession>> {
        self.inner().sessions.get(env, node).cloned()
    }

    /// State of a node's connection to this replica, and since when.
    pub fn local_link(&self, env: &EnvName, node: &NodeName) -> LocalLink {
        let inner = self.inner();
        match inner.sessions.get(env, node) {
            Some(session) => LocalLink::Connected { since: session.since },
            None => LocalLink::Not { since: inner.silent_since(env, node).unwrap_or(self.listening_since) },
        }
    }

    /// Nodes whose session here began or ended since a position.
    pub(super) fn session_changes(&self, env: &EnvName, since: Option<&ChangePosition>) -> ChangedNodes {
        self.inner().session_changes.entry(env.clone()).or_default().read(since)
    }

    /// Those of the nodes that have no session here. One lock for all of them: clients ask for thousands of nodes at a time.
    pub(super) fn without_session<'a>(
        &self,
        env: &EnvName,
        nodes: impl Iterator<Item = &'a NodeName>,
    ) -> Vec<&'a NodeName> {
        let inner = self.inner();
        let sessions = inner.sessions.of_env(env);
        nodes.filter(|node| sessions.is_none_or(|sessions| !sessions.contains_key(*node))).collect()
    }

    /// Time since which a node has no session here: the end of its last session, or the start of the server.
    pub fn silent_since(&self, env: &EnvName, node: &NodeName) -> Timestamp {
        self.inner().silent_since(env, node).unwrap_or(self.listening_since)
    }

    /// The last calls here of agents that cron starts.
    pub(crate) fn ended_calls(&self, env: &EnvName) -> HashMap<NodeName, EndedCall> {
        self.inner().ended_calls.get(env).cloned().unwrap_or_default()
    }

    /// Wakes the sessions that a change of the view concerns, forever.
    ///
    /// A woken stream is a task that writes. Other tasks have their turn between some of them: requests, and the rollout controller,
    /// whose next grants should not wait until all agents have the last ones.
    pub async fn wake(&self, mut changes: mpsc::Receiver<ViewChange>) {
        while let Some(change) = changes.recv().await {
            let concerned = self.concerned(&change);
            for (number, sessions) in concerned.chunks(WOKEN_TOGETHER).enumerate() {
                if number > 0 {
                    tokio::task::yield_now().await;
                }
                sessions.iter().for_each(|session| session.wake.notify_one());
            }
        }
    }

    /// The sessions that a change of the view concerns. One may be named more than once.
    fn concerned(&self, change: &ViewChange) -> Vec<Arc<AgentSession>> {
        let inner = self.inner();
        let (env, effects) = match change {
            ViewChange::Everything => return inner.sessions.all().cloned().collect(),
            ViewChange::Env(env, effects) if effects.desired => return inner.sessions.in_env(env).cloned().collect(),
            ViewChange::Env(env, effects) => (env, effects),
        };
        let session = |node: &NodeName| inner.sessions.get(env, node).cloned();
        let mut concerned: Vec<_> = effects.addressed_nodes.iter().filter_map(session).collect();
        if let Some(index) = inner.lookups.get(env) {
            let of_roles = (!effects.roles.is_empty())
                .then(|| index.by_role(|role| effects.roles.contains(role)))
                .into_iter()
                .flatten();
            let nodes = effects.lookups.iter().flat_map(|key| index.by_key(key)).chain(of_roles);
            concerned.extend(nodes.filter_map(session));
        }
        concerned
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changed.send_modify(|steps| *steps += 1);
    }
}

impl Inner {
    fn has_different_agent(&self, env: &EnvName, node: &NodeName, holder: Option<&str>) -> bool {
        let session = self.sessions.get(env, node);
        session.is_some_and(|session| are_different_agents(session.holder.as_deref(), holder))
    }

    fn silent_since(&self, env: &EnvName, node: &NodeName) -> Option<Timestamp> {
        self.silent_since.get(env)?.get(node).copied()
    }

    fn record_session_change(&mut self, env: &EnvName, node: &NodeName) {
        let sessions = self.sessions.of_env(env).map_or(0, HashMap::len);
        self.session_changes.entry(env.clone()).or_default().record(node.clone(), sessions);
    }

    fn set_lookups(&mut self, session: &AgentSession, lookups: Lookups) {
        self.remove_lookups(session);
        let index = self.lookups.entry(session.env.clone()).or_default();
        session.state().lookups = Some(index.add(&session.node, lookups));
    }

    fn remove_lookups(&mut self, session: &AgentSession) {
        let Some(seen) = session.state().lookups.take() else { return };
        if let Some(index) = self.lookups.get_mut(&session.env) {
            index.remove(&session.node, &seen);
            if index.is_empty() {
                self.lookups.remove(&session.env);
            }
        }
    }
}
