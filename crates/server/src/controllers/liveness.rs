//! Removes lost nodes from `active_roles`, and adds them again when they return.
//!
//! [`muster_core::node::liveness::decide`] decides; this reads, commits, and sleeps until something changes or is due. Every
//! replica decides, for its status responses; the replica that holds the lock commits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use muster_core::fleet::{Fleet, Node};
use muster_core::names::{EnvName, NodeName};
use muster_core::node::liveness::{
    LivenessDecision, LivenessInput, LivenessTimeouts, SilentDomain, decide, may_be_active, transactions,
};
use muster_core::node::status::Activity;
use muster_core::replica::ControllerName;
use muster_core::txn::Txn;

use crate::agents::{AgentConnection, Hub, Links};
use crate::app::Clock;
use crate::replica::{ControllerLock, ControllerLocks, FencedOutcome};
use crate::view::{LatestRevision, View};

/// Connections that change within this time are handled together. Losing a node takes half a minute anyway.
const PACE: Duration = Duration::from_secs(1);
/// Longest wait at the shutdown of a fleet until all replicas know that its agents are gone.
const FAREWELL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct LivenessController {
    pub(crate) view: Arc<View>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) links: Arc<Links>,
    pub(crate) controller_locks: Arc<ControllerLocks>,
    pub(crate) latest_revision: Arc<LatestRevision>,
    pub(crate) clock: Clock,
    pub(crate) liveness_timeouts: LivenessTimeouts,
    pub(crate) held: Mutex<BTreeMap<EnvName, Vec<SilentDomain>>>,
}

/// Extent to which a decision was committed. A worse outcome is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CommitExtent {
    All,
    /// A part of the decision was stale.
    Partial,
    /// The store is unavailable.
    StoreUnavailable,
}

impl LivenessController {
    /// Failure domains of an environment in which no node is declared lost.
    pub fn held(&self, env: &EnvName) -> Vec<SilentDomain> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).get(env).cloned().unwrap_or_default()
    }

    /// Reconciles liveness, forever.
    pub async fn run(&self) {
        let mut connections = self.hub.subscribe();
        let mut servers = self.view.subscribe_servers();
        let mut controller_locks = self.controller_locks.subscribe();
        loop {
            connections.mark_unchanged();
            servers.mark_unchanged();
            controller_locks.mark_unchanged();
            let wait = self.reconcile().await.unwrap_or(Duration::MAX).max(PACE);
            // Wakes up for: a connection that begins or ends, here or elsewhere; a replica that leaves; a controller lock; or the
            // time at which a node becomes lost.
            tokio::select! {
                _ = connections.changed() => {}
                _ = servers.changed() => {}
                _ = controller_locks.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
            tokio::time::sleep(PACE).await;
        }
    }

    /// Removes all nodes of an environment from their roles, after their machines were switched off. Only the holder of the
    /// liveness or provisioning lock may do this.
    pub async fn switched_off(&self, env: &EnvName) {
        let mine = |name| self.controller_locks.held(env, name);
        let Some(held) = mine(ControllerName::Liveness).or_else(|| mine(ControllerName::Provision)) else {
            tracing::info!(%env, "another replica holds its controllers");
            return;
        };
        // Their last reports may just have been committed.
        if let Ok(newest) = self.latest_revision.read().await {
            let _ = self.view.reach(newest).await;
        }
        // A replica that takes them for connected would add them again.
        let _ = tokio::time::timeout(FAREWELL, self.all_silent(env)).await;
        let changes = {
            let fleets = self.view.fleets();
            let Some(fleet) = fleets.get(env) else { return };
            let active = fleet.designed().filter(|(_, node, _)| node.active().is_some());
            let withdraw = active.map(|(name, ..)| name.clone()).collect();
            transactions(fleet, &LivenessDecision { withdraw, ..LivenessDecision::default() })
        };
        self.commit(&held, changes).await;
    }

    /// Waits until the store shows no node as connected.
    async fn all_silent(&self, env: &EnvName) {
        let mut servers = self.view.subscribe_servers();
        loop {
            servers.mark_unchanged();
            let any_connected = self.view.fleets().get(env).is_some_and(|fleet| {
                let replica = |node: &Node| node.presence.as_ref().and_then(|(presence, _)| presence.replica.clone());
                fleet.recorded().filter_map(|(_, node, _)| replica(node)).any(|id| fleet.replicas().contains_key(&id))
            });
            if !any_connected || servers.changed().await.is_err() {
                return;
            }
        }
    }

    /// Decides and commits once. Returns the time until the next reconciliation at the latest.
    async fn reconcile(&self) -> Option<Duration> {
        let now = self.clock.now();
        let envs: Vec<EnvName> = self.view.fleets().keys().cloned().collect();
        let mut done = CommitExtent::All;
        let mut recheck: Option<Timestamp> = None;
        let mut held_domains = BTreeMap::new();
        for env in envs {
            let held = self.controller_locks.held(&env, ControllerName::Liveness);
            let (decision, changes) = {
                let fleets = self.view.fleets();
                let Some(fleet) = fleets.get(&env) else { continue };
                let decision = self.decide(fleet, held.as_ref());
                let changes = held.as_ref().map(|_| transactions(fleet, &decision)).unwrap_or_default();
                (decision, changes)
            };
            // A store that is unavailable for one environment is so for all: the others are decided, but not committed.
            if let Some(held) = held.as_ref().filter(|_| done != CommitExtent::StoreUnavailable) {
                log_changes(&env, &decision);
                done = done.max(self.commit(held, changes).await);
                recheck = recheck.into_iter().chain(decision.recheck).min();
            }
            held_domains.insert(env, decision.held);
        }
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held_domains;
        match done {
            CommitExtent::All => recheck.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default()),
            CommitExtent::Partial | CommitExtent::StoreUnavailable => Some(PACE),
        }
    }

    /// Commits changes up to the first that fails: each further one would wait for the store's timeout, and the decision would be
    /// stale by then. The rest is decided again at the next reconciliation.
    async fn commit(&self, held: &ControllerLock, changes: Vec<(NodeName, Txn)>) -> CommitExtent {
        let mut done = CommitExtent::All;
        for (node, txn) in changes {
            match self.controller_locks.commit(held, txn).await {
                Ok(FencedOutcome::Committed { .. }) => {}
                // Its status changed meanwhile.
                Ok(FencedOutcome::Refused { .. }) => done = CommitExtent::Partial,
                // Another replica holds the lock now.
                Ok(FencedOutcome::LockLost) => return done,
                Err(error) => {
                    tracing::warn!(%node, %error, "its liveness cannot be recorded; it is decided again soon");
                    return CommitExtent::StoreUnavailable;
                }
            }
        }
        done
    }

    /// Agents look for a new server after a replica has taken over: the grace period begins again.
    fn decide(&self, fleet: &Fleet, held: Option<&ControllerLock>) -> LivenessDecision {
        let started = self.hub.listening_since();
        let listening = held.map_or(started, |held| held.since.max(started));
        let seen = fleet.designed().map(|(name, node, record)| {
            let contact = self.links.agent(fleet, name);
            let running = match &contact.at {
                AgentConnection::Local(session) => is_running(&session.activity()),
                AgentConnection::Remote(_) | AgentConnection::Disconnected => false,
            };
            LivenessInput {
                node: name,
                failure_domain: &record.failure_domain,
                link: contact.link,
                may_be_active: may_be_active(node) && !running,
                active: node.active().is_some(),
            }
        });
        decide(seen, self.liveness_timeouts, listening, self.clock.now())
    }
}

fn log_changes(env: &EnvName, decision: &LivenessDecision) {
    decision.withdraw.iter().for_each(|node| tracing::warn!(%env, %node, "lost: removed from its role"));
    decision.restore.iter().for_each(|node| tracing::info!(%env, %node, "back: added to its role again"));
}

/// A node that returns during a run, after a reboot for example, is validated by that run.
fn is_running(activity: &Activity) -> bool {
    match activity {
        Activity::Applying { .. } | Activity::Validating { .. } => true,
        Activity::Idle | Activity::Retrying { .. } | Activity::Blocked { .. } => false,
    }
}
