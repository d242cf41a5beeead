//! The agents that are connected: what each has seen, what each does, and whom a change wakes.
//!
//! A session holds the tags of what its node's last run looked up. A change of the view wakes exactly the sessions that
//! looked up what changed; a woken stream then compares tags with the view and says what is new. Waking is a hint that
//! can be given too often or twice without harm; what is sent depends on the comparison alone.

#[cfg(test)]
#[path = "scale_tests.rs"]
mod scale_tests;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use muster_core::fleet::{Fleet, Node};
use muster_core::lookup::Lookups;
use muster_core::names::{EnvName, NodeName};
use muster_core::node::status::Activity;
use muster_core::replica::links::LocalLink;
use muster_core::txn::Revision;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::live_logs::LiveLogs;
use super::lookup_index::{Compared, Comparisons, Interests, Seen};
use super::session::{JoinRequest, Session, Sessions, Told};
use crate::clock::Clock;
use crate::view::{View, ViewChange};

pub(crate) type Place = (EnvName, NodeName);

#[derive(Debug)]
pub struct Hub {
    clock: Clock,
    listening_since: Timestamp,
    inner: Mutex<Inner>,
    stop: CancellationToken,
    /// How far the view is: what was said before an agent was heard, and what after.
    view: watch::Receiver<Option<Revision>>,
    /// Steps whenever a connection begins or ends, or an agent does something else.
    changed: watch::Sender<u64>,
    opened: AtomicU64,
    ended: AtomicU64,
    /// What the runs say that go on.
    pub(crate) live_logs: Arc<LiveLogs>,
    comparisons: Comparisons,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: Sessions,
    /// What the nodes' last runs looked up.
    interests: HashMap<EnvName, Interests>,
    silent_since: HashMap<EnvName, HashMap<NodeName, Timestamp>>,
    /// Nodes with a session here of which another replica says that they are connected to it: whether it is right shows
    /// when they are heard again, here or there.
    contested: HashSet<Place>,
}

/// Ends the session when the stream is dropped, however that comes about.
#[derive(Debug)]
pub struct SessionGuard {
    pub session: Arc<Session>,
    hub: Arc<Hub>,
}

impl SessionGuard {
    /// Compares what the node has seen with what it would see now; none if it is connected anew.
    pub(crate) fn compare(&self, fleet: &Fleet, node: Option<&Node>) -> Option<(Arc<Seen>, Arc<Compared>)> {
        let seen = self.session.seen()?;
        let compared = self.hub.comparisons.compare(fleet, &self.session.node, node, &seen);
        Some((seen, compared))
    }

    /// Notes that the node has been sent what is there now, in place of what it had seen. If it has reported another run
    /// meanwhile, that one counts, and is compared anew.
    pub(crate) fn saw(&self, before: &Arc<Seen>, now: Arc<Seen>) {
        let mut inner = self.hub.inner();
        if self.session.seen().is_some_and(|seen| Arc::ptr_eq(&seen, before)) && !self.session.ended.is_cancelled() {
            inner.forget_lookups(&self.session);
            let interests = inner.interests.entry(self.session.env.clone()).or_default();
            self.session.told().seen = Some(interests.share(&self.session.node, now));
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
    /// All streams end when `stop` is cancelled.
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

    /// Ends when the server stops: whoever holds a request open must let go of it then.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    pub fn listening_since(&self) -> Timestamp {
        self.listening_since
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// How many agents are connected.
    pub fn connected(&self) -> usize {
        self.inner().sessions.len()
    }

    /// How many streams have been opened so far, and how many of them have ended.
    pub fn streams(&self) -> (u64, u64) {
        let ended = self.ended.load(Ordering::Relaxed);
        (self.opened.load(Ordering::Relaxed), ended)
    }

    /// An agent has connected. An older connection of the same node ends.
    pub fn join(self: &Arc<Self>, env: &EnvName, node: &NodeName, arrival: JoinRequest) -> SessionGuard {
        let JoinRequest { lookups, activity, away } = arrival;
        let session = Arc::new(Session {
            env: env.clone(),
            node: node.clone(),
            since: self.clock.now(),
            wake: Notify::new(),
            go: Notify::new(),
            away,
            joined: Instant::now(),
            ended: self.stop.child_token(),
            told: Mutex::new(Told {
                seen: None,
                activity,
                heard: Instant::now(),
                heard_at: self.view_at(),
                asked_to_go: None,
            }),
        });
        let mut inner = self.inner();
        if let Some(old) = inner.sessions.insert(session.clone()) {
            inner.forget_lookups(&old);
            old.ended.cancel();
        }
        if let Some(silent) = inner.silent_since.get_mut(env) {
            silent.remove(node);
        }
        inner.set_lookups(&session, lookups);
        drop(inner);
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.step();
        SessionGuard { session, hub: self.clone() }
    }

    fn leave(&self, session: &Arc<Session>) {
        let mut inner = self.inner();
        if inner.sessions.remove(session) {
            inner.forget_lookups(session);
            let silent = inner.silent_since.entry(session.env.clone()).or_default();
            silent.insert(session.node.clone(), self.clock.now());
            drop(inner);
            self.live_logs.agent_gone(&session.env, &session.node);
            self.step();
        }
    }

    /// A report says what its run looked up and saw. The stream compares it with what is there now.
    pub fn looked_up(&self, env: &EnvName, node: &NodeName, lookups: Lookups) {
        let mut inner = self.inner();
        if let Some(session) = inner.sessions.get(env, node).cloned() {
            inner.set_lookups(&session, lookups);
            session.wake.notify_one();
            drop(inner);
            self.heard(&session);
        }
    }

    pub fn acts(&self, env: &EnvName, node: &NodeName, activity: Activity) {
        if let Some(session) = self.session(env, node) {
            self.heard(&session);
            // The answer to a ping says most often what is known; nobody is to look at it again.
            let before = std::mem::replace(&mut session.told().activity, activity.clone());
            if before != activity {
                self.step();
            }
        }
    }

    fn heard(&self, session: &Session) {
        {
            let mut told = session.told();
            told.heard = Instant::now();
            told.heard_at = self.view_at();
        }
        let place = (session.env.clone(), session.node.clone());
        if self.inner().contested.contains(&place) {
            self.step();
        }
    }

    fn view_at(&self) -> Revision {
        self.view.borrow().unwrap_or_default()
    }

    /// Names the nodes whose next word decides which replica they are connected to.
    pub(crate) fn contest(&self, places: HashSet<Place>) {
        self.inner().contested = places;
    }

    /// All connections.
    pub fn all_sessions(&self) -> Vec<Arc<Session>> {
        self.inner().sessions.all().cloned().collect()
    }

    /// The connections of an environment's nodes.
    pub fn sessions(&self, env: &EnvName) -> Vec<Arc<Session>> {
        self.inner().sessions.of(env).cloned().collect()
    }

    pub fn session(&self, env: &EnvName, node: &NodeName) -> Option<Arc<Session>> {
        self.inner().sessions.get(env, node).cloned()
    }

    /// Since when a node's agent is connected here, or is not.
    pub fn here(&self, env: &EnvName, node: &NodeName) -> LocalLink {
        let inner = self.inner();
        match inner.sessions.get(env, node) {
            Some(session) => LocalLink::Connected { since: session.since },
            None => LocalLink::Not { since: inner.silent_since(env, node).unwrap_or(self.listening_since) },
        }
    }

    /// Since when a node has had no connection to this server: since it ended, or since the server started.
    pub fn silent_since(&self, env: &EnvName, node: &NodeName) -> Timestamp {
        self.inner().silent_since(env, node).unwrap_or(self.listening_since)
    }

    /// Wakes whom the changes of the view concern, for ever.
    pub async fn wake(&self, mut changes: mpsc::Receiver<ViewChange>) {
        while let Some(change) = changes.recv().await {
            match change {
                ViewChange::Everything => self.inner().sessions.all().for_each(|session| session.wake.notify_one()),
                ViewChange::Env(env, effects) if effects.desired => {
                    self.inner().sessions.of(&env).for_each(|session| session.wake.notify_one());
                }
                ViewChange::Env(env, effects) => {
                    let inner = self.inner();
                    for node in &effects.told {
                        if let Some(session) = inner.sessions.get(&env, node) {
                            session.wake.notify_one();
                        }
                    }
                    let Some(interests) = inner.interests.get(&env) else { continue };
                    let of_roles = (!effects.roles.is_empty())
                        .then(|| interests.in_roles(|role| effects.roles.contains(role)))
                        .into_iter()
                        .flatten();
                    let nodes = effects.lookups.iter().flat_map(|key| interests.in_key(key)).chain(of_roles);
                    for session in nodes.filter_map(|node| inner.sessions.get(&env, node)) {
                        session.wake.notify_one();
                    }
                }
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self) {
        self.changed.send_modify(|steps| *steps += 1);
    }
}

impl Inner {
    fn silent_since(&self, env: &EnvName, node: &NodeName) -> Option<Timestamp> {
        self.silent_since.get(env)?.get(node).copied()
    }

    fn set_lookups(&mut self, session: &Session, lookups: Lookups) {
        self.forget_lookups(session);
        let interests = self.interests.entry(session.env.clone()).or_default();
        session.told().seen = Some(interests.note(&session.node, lookups));
    }

    fn forget_lookups(&mut self, session: &Session) {
        let Some(seen) = session.told().seen.take() else { return };
        if let Some(interests) = self.interests.get_mut(&session.env) {
            interests.forget(&session.node, &seen);
            if interests.is_empty() {
                self.interests.remove(&session.env);
            }
        }
    }
}
