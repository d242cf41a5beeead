//! Takes lost nodes out of `active_roles`, and puts them back when they return.
//!
//! [`muster_core::liveness::decide`] decides; this reads, commits, and sleeps until something changes or is due.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_core::fleet::{Fleet, Node};
use muster_core::keys::Keys;
use muster_core::liveness::{Decision, HeldDomain, Patience, Seen, decide};
use muster_core::names::{EnvName, NodeName};
use muster_core::records::ActiveRole;
use muster_core::standing::Activity;
use muster_core::txn::{Guard, Op, Txn};
use muster_store::{Outcome, Store};

use crate::clock::Clock;
use crate::hub::Hub;
use crate::view::View;

/// Connections that come and go are looked at together: losing a node is a matter of half a minute, not of this second.
const PACE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Liveness {
    store: Arc<dyn Store>,
    view: Arc<View>,
    hub: Arc<Hub>,
    clock: Clock,
    patience: Patience,
    held: Mutex<BTreeMap<EnvName, Vec<HeldDomain>>>,
}

impl Liveness {
    pub fn new(store: Arc<dyn Store>, view: Arc<View>, hub: Arc<Hub>, clock: Clock, patience: Patience) -> Self {
        Self { store, view, hub, clock, patience, held: Mutex::default() }
    }

    /// Failure domains of an environment in which nobody is declared lost.
    pub fn held(&self, env: &EnvName) -> Vec<HeldDomain> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).get(env).cloned().unwrap_or_default()
    }

    /// Looks after liveness, for ever.
    pub async fn run(&self) {
        let mut connections = self.hub.subscribe();
        loop {
            connections.mark_unchanged();
            let wait = self.look().await.unwrap_or(Duration::MAX).max(PACE);
            // A connection that begins or ends, or a moment at which somebody becomes lost; nothing in between.
            let _ = tokio::time::timeout(wait, connections.changed()).await;
            tokio::time::sleep(PACE).await;
        }
    }

    /// Takes all nodes of an environment out of their roles: somebody has switched their machines off.
    pub async fn switched_off(&self, env: &EnvName) {
        // Their last reports may have been committed a moment ago.
        if let Ok(newest) = self.store.revision().await {
            let _ = self.view.reach(newest).await;
        }
        let changes = {
            let fleets = self.view.fleets();
            let Some(fleet) = fleets.get(env) else { return };
            let active = fleet.designed().filter(|(_, node, _)| node.active().is_some());
            let withdraw = active.map(|(name, ..)| name.clone()).collect();
            changes(fleet, &Decision { withdraw, ..Decision::default() })
        };
        self.commit(changes).await;
    }

    /// Decides and acts once. Returns when to look again at the latest.
    async fn look(&self) -> Option<Duration> {
        let now = self.clock.now();
        let (decisions, changes) = {
            let fleets = self.view.fleets();
            let decisions: BTreeMap<EnvName, Decision> =
                fleets.values().map(|fleet| (fleet.env.clone(), self.judge(fleet))).collect();
            let changes: Vec<(NodeName, Txn)> = decisions
                .iter()
                .filter_map(|(env, decision)| Some((fleets.get(env)?, decision)))
                .flat_map(|(fleet, decision)| changes(fleet, decision))
                .collect();
            (decisions, changes)
        };
        for (env, decision) in &decisions {
            decision.withdraw.iter().for_each(|node| tracing::warn!(%env, %node, "lost: others no longer count on it"));
            decision.restore.iter().for_each(|node| tracing::info!(%env, %node, "back: others may count on it again"));
        }
        let all_done = self.commit(changes).await;
        let recheck = decisions.values().filter_map(|decision| decision.recheck).min();
        let held = decisions.into_iter().map(|(env, decision)| (env, decision.held)).collect();
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
        if !all_done {
            return Some(PACE);
        }
        recheck.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or_default())
    }

    /// Commits changes; whether all of them were made. What was not is decided anew at the next look.
    async fn commit(&self, changes: Vec<(NodeName, Txn)>) -> bool {
        let mut all_done = true;
        for (node, txn) in changes {
            match self.store.commit(txn).await {
                Ok(Outcome::Committed { .. }) => {}
                // Its status moved meanwhile.
                Ok(Outcome::Refused { .. }) => all_done = false,
                Err(error) => {
                    all_done = false;
                    tracing::warn!(%node, %error, "its liveness cannot be recorded");
                }
            }
        }
        all_done
    }

    fn judge(&self, fleet: &Fleet) -> Decision {
        let seen = fleet.designed().map(|(name, node, record)| {
            let (link, activity) = self.hub.link(&fleet.env, name);
            Seen {
                node: name,
                failure_domain: &record.failure_domain,
                link,
                fit: is_fit(node) && !is_running(&activity),
                active: node.active().is_some(),
            }
        });
        decide(seen, self.patience, self.hub.listening_since(), self.clock.now())
    }
}

/// A node that comes back in the middle of a run (its machine was restarted, say) proves itself by that run.
fn is_running(activity: &Activity) -> bool {
    match activity {
        Activity::Applying { .. } | Activity::Validating { .. } => true,
        Activity::Idle | Activity::Retrying { .. } | Activity::Blocked { .. } => false,
    }
}

/// Its last validation passed, and its machine has not been started again since.
fn is_fit(node: &Node) -> bool {
    node.observed.as_ref().is_some_and(|(observed, _)| observed.passed.is_some() && !observed.rebooted)
}

/// The transactions of a decision, each fenced by the node's last report.
fn changes(fleet: &Fleet, decision: &Decision) -> Vec<(NodeName, Txn)> {
    let keys = Keys::of(&fleet.env);
    let change = |name: &NodeName, back: bool| {
        let node = fleet.get(name)?;
        let (observed, at) = node.observed.as_ref()?;
        let key = keys.active_role(observed.passed.as_ref()?, name);
        let op = if back {
            let role = node.record.as_ref()?.role.clone();
            Op::put_json(key, &ActiveRole { role, interfaces: observed.interfaces.clone() }).ok()?
        } else {
            Op::delete(key)
        };
        let txn = Txn::new().guard(Guard::seen(keys.observed(name), Some(*at))).op(op);
        Some((name.clone(), txn))
    };
    let lost = decision.withdraw.iter().filter_map(|name| change(name, false));
    lost.chain(decision.restore.iter().filter_map(|name| change(name, true))).collect()
}
