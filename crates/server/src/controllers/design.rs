//! Makes nodes follow the applied design, and removes an environment that is being destroyed.
//!
//! An apply commits `design/applied` and nothing else. This controller executes it at the replica that holds the lock, also
//! if the replica that served the request fails. Every write is guarded by the lock and by `design/applied`: nodes never
//! return to an earlier design.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::replica::ControllerName;
use muster_core::txn::{Guard, Revision};
use tokio::time::{Instant, sleep, sleep_until};

use super::backoff::Backoff;
use crate::App;
use crate::api::chain;
use crate::design::cache::DesignRef;
use crate::design::erase::{EraseOutcome, erase};
use crate::fleet_change::{compare, follow_design_while};
use crate::replica::ControllerLock;

/// Time until the next attempt after a failure.
const AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct DesignController {
    pub app: App,
}

/// Goal of an environment.
enum Follow {
    /// Follow a revision of the design, applied at a revision of the store.
    Design(DesignRef, Revision),
    /// Remove all nodes, then the environment.
    End(Revision),
}

/// Outcome of a reconciliation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Done {
    All,
    /// Needs an operator: a blob is missing, or the design has errors.
    Stuck(String),
    /// Waits for a step of the view.
    Waits,
    /// Failed, and is retried.
    Failed,
}

impl DesignController {
    /// Reconciles all environments, forever.
    pub async fn run(self) {
        let mut servers = self.app.view.subscribe_servers();
        let mut controller_locks = self.app.replica.controller_locks.subscribe();
        let mut steps = self.app.view.subscribe();
        let mut stuck = Backoff::default();
        loop {
            servers.mark_unchanged();
            controller_locks.mark_unchanged();
            steps.mark_unchanged();
            let envs: Vec<EnvName> = self.app.view.fleets().keys().cloned().collect();
            stuck.keep(&envs);
            let (mut waits, mut failed) = (false, false);
            for env in &envs {
                let Some(held) = self.app.replica.controller_locks.held(env, ControllerName::Design) else {
                    stuck.forget(env);
                    continue;
                };
                let since = self.told_at(env);
                if stuck.rests(env, since, Instant::now()) {
                    continue;
                }
                match self.look(&held).await {
                    Done::Stuck(cause) => {
                        if stuck.add(env, since, cause.clone(), Instant::now()) {
                            tracing::error!(%env, cause, "the nodes cannot follow the design until an operator acts");
                        }
                        continue;
                    }
                    Done::All => {}
                    Done::Waits => waits = true,
                    Done::Failed => failed = true,
                }
                stuck.forget(env);
            }
            let next = stuck.next();
            tokio::select! {
                _ = servers.changed() => {}
                _ = controller_locks.changed() => {}
                _ = steps.changed(), if waits => {}
                () = sleep(AGAIN), if failed => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
    }

    /// Store revision of an environment's goal.
    fn told_at(&self, env: &EnvName) -> Option<Revision> {
        let fleets = self.app.view.fleets();
        let fleet = fleets.get(env)?;
        match (fleet.destroying(), &fleet.design().applied) {
            (Some((_, at)), _) | (None, Some((_, at))) => Some(*at),
            (None, None) => None,
        }
    }

    /// Reconciles one environment with its goal.
    async fn look(&self, held: &ControllerLock) -> Done {
        let follow = {
            let fleets = self.app.view.fleets();
            let Some(fleet) = fleets.get(&held.env) else { return Done::All };
            match (fleet.destroying(), &fleet.design().applied) {
                (Some((_, at)), _) => Follow::End(*at),
                (None, Some((applied, at))) => match DesignRef::of(fleet, Some(applied.revision)) {
                    Ok(meant) => Follow::Design(meant, *at),
                    Err(error) => return Done::Stuck(chain(&error)),
                },
                (None, None) => return Done::All,
            }
        };
        match follow {
            Follow::Design(meant, at) => self.follow(held, &meant, at).await,
            Follow::End(at) => self.end(held, at).await,
        }
    }

    async fn follow(&self, held: &ControllerLock, meant: &DesignRef, at: Revision) -> Done {
        let env = &held.env;
        let design = match self.app.designs.get(env, meant).await {
            Ok(design) => design,
            Err(error) => return Done::Stuck(chain(&error)),
        };
        if !design.is_usable() {
            // An earlier version of Muster with fewer rules accepted it. Nodes must not change because of that.
            return Done::Stuck(format!("their design, number {}, has errors", meant.number));
        }
        let records = design.records();
        if self.app.view.fleets().get(env).is_some_and(|fleet| compare(fleet, &records).is_nothing()) {
            return Done::All;
        }
        let applied = Guard::Unchanged { key: Keys::new(env).design_applied(), since: at };
        match follow_design_while(&self.app, env, &records, &[held.guard(), applied]).await {
            Ok(change) => {
                let (added, changed) = (change.added.len() + change.returned.len(), change.changed.len());
                let gone = change.leaving.len() + change.removed.len();
                tracing::info!(%env, design = %meant.number, added, changed, gone, "nodes follow the design");
                Done::All
            }
            Err(error) => failed(env, &error),
        }
    }

    /// Decommissions all nodes, then removes the environment.
    async fn end(&self, held: &ControllerLock, at: Revision) -> Done {
        let env = &held.env;
        let destroying = Guard::Unchanged { key: Keys::new(env).destroying(), since: at };
        let guards = [held.guard(), destroying];
        if let Err(error) = follow_design_while(&self.app, env, &BTreeMap::new(), &guards).await {
            return failed(env, &error);
        }
        if self.app.view.fleets().get(env).is_some_and(|fleet| fleet.recorded().next().is_some()) {
            return Done::Waits;
        }
        match erase(self.app.store.as_ref(), env, &guards).await {
            Ok(EraseOutcome::All { revision }) => {
                self.app.designs.forget(env);
                tracing::warn!(%env, "destroyed");
                if self.app.view.reach(revision).await.is_ok() { Done::All } else { Done::Failed }
            }
            Ok(EraseOutcome::Overtaken) => Done::Failed,
            Err(error) => failed(env, &error),
        }
    }
}

fn failed(env: &EnvName, error: &(dyn std::error::Error + 'static)) -> Done {
    tracing::warn!(%env, error, "the nodes cannot follow the design; retrying");
    Done::Failed
}
