//! Elects a leader for each role, and ends pauses that have expired.
//!
//! [`muster_core::node::leaders::decide`] and [`muster_core::node::pause::expired`] decide; this reads, commits, and sleeps
//! until something changes or is due. Only the replica that holds the lock decides. In steady state nothing is written.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::node::leaders::{LeaderChange, decide};
use muster_core::node::liveness::LivenessTimeouts;
use muster_core::node::pause::{self, PauseScope};
use muster_core::replica::ControllerName;
use muster_core::txn::{Guard, Op, Txn};

use crate::agents::{Hub, Links};
use crate::app::Clock;
use crate::replica::{ControllerLock, ControllerLocks, FencedOutcome};
use crate::view::View;

/// Changes within this time are handled together: a fleet that starts connects and validates in bursts.
const PACE: Duration = Duration::from_millis(250);
/// Time until the next attempt after a failed write.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct LeadersController {
    pub(crate) view: Arc<View>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) links: Arc<Links>,
    pub(crate) controller_locks: Arc<ControllerLocks>,
    pub(crate) clock: Clock,
    pub(crate) liveness_timeouts: LivenessTimeouts,
}

/// A write, with what it does for the log.
#[derive(Debug)]
enum LeaderWrite {
    Lead(LeaderChange),
    Resume(PauseScope),
}

impl LeadersController {
    /// Reconciles leaders and pauses, forever.
    pub async fn run(&self) {
        let mut connections = self.hub.subscribe();
        let mut leading = self.view.subscribe_leading();
        let mut servers = self.view.subscribe_servers();
        let mut controller_locks = self.controller_locks.subscribe();
        loop {
            connections.mark_unchanged();
            leading.mark_unchanged();
            servers.mark_unchanged();
            controller_locks.mark_unchanged();
            let wait = self.reconcile().await.unwrap_or(Duration::MAX);
            // Wakes up for: a connection that begins or ends, here or elsewhere; a node that enters or leaves service; a pause; a
            // controller lock; or the time at which a node becomes lost or a pause expires.
            tokio::select! {
                _ = connections.changed() => {}
                _ = leading.changed() => {}
                _ = servers.changed() => {}
                _ = controller_locks.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
            tokio::time::sleep(PACE).await;
        }
    }

    /// Decides and commits once. Returns the time until the next reconciliation at the latest.
    async fn reconcile(&self) -> Option<Duration> {
        let envs: Vec<EnvName> = self.view.fleets().keys().cloned().collect();
        let mut recheck: Option<Timestamp> = None;
        let mut again = None;
        for env in envs {
            let Some(held) = self.controller_locks.held(&env, ControllerName::Leaders) else { continue };
            let steps = {
                let fleets = self.view.fleets();
                let Some(fleet) = fleets.get(&env) else { continue };
                let (steps, due) = self.decide_steps(fleet, &held);
                recheck = recheck.into_iter().chain(due).min();
                steps
            };
            for (step, txn) in steps {
                match self.controller_locks.commit(&held, txn).await {
                    Ok(FencedOutcome::Committed { .. }) => log_step(&env, &step),
                    // The decision was stale. The view usually wakes this controller, but not for a change elsewhere.
                    Ok(FencedOutcome::Refused { .. }) => again = Some(AGAIN),
                    Ok(FencedOutcome::LockLost) => break,
                    Err(error) => {
                        let source = &error as &dyn std::error::Error;
                        tracing::warn!(%env, error = source, "{}; it is decided again soon", step.failure_text());
                        return Some(AGAIN);
                    }
                }
            }
        }
        let now = self.clock.now();
        let due = recheck.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default());
        again.into_iter().chain(due).min()
    }

    /// Steps to commit, and the time of the next decision. Agents look for a new server after a replica has taken over: the
    /// grace period begins again.
    fn decide_steps(&self, fleet: &Fleet, held: &ControllerLock) -> (Vec<(LeaderWrite, Txn)>, Option<Timestamp>) {
        let (now, keys) = (self.clock.now(), Keys::new(&fleet.env));
        let listening = held.since.max(self.hub.listening_since());
        let leaders = decide(fleet, |name| self.links.agent(fleet, name).link, self.liveness_timeouts, listening, now);
        let pauses = pause::expired(fleet.pauses(), now);
        let mut steps = Vec::new();
        for change in leaders.changes {
            match change.txn(fleet) {
                Ok(txn) => steps.push((LeaderWrite::Lead(change), txn)),
                Err(error) => tracing::error!(%error, "the record of a leader cannot be written"),
            }
        }
        if fleet.restoring().is_none() {
            steps.extend(pauses.over.into_iter().map(|(scope, at)| {
                let key = keys.pause(&scope);
                let txn = Txn::new().guard(Guard::observed(key.clone(), Some(at))).op(Op::delete(key));
                (LeaderWrite::Resume(scope), txn)
            }));
        }
        (steps, leaders.recheck.into_iter().chain(pauses.next).min())
    }
}

impl LeaderWrite {
    fn failure_text(&self) -> String {
        match self {
            LeaderWrite::Lead(LeaderChange { role, .. }) => format!("the leader of role {role} cannot be recorded"),
            LeaderWrite::Resume(scope) => format!("the pause of {scope} is over, and cannot be ended"),
        }
    }
}

fn log_step(env: &EnvName, step: &LeaderWrite) {
    match step {
        LeaderWrite::Lead(LeaderChange { role, now, because, .. }) => match &now.node {
            Some(node) => tracing::info!(%env, %role, %node, epoch = now.epoch, %because, "has a new leader"),
            None => tracing::warn!(%env, %role, %because, "has no leader: none of its nodes is available"),
        },
        LeaderWrite::Resume(scope) => tracing::info!(%env, "the pause of {scope} is over"),
    }
}
