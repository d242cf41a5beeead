//! Makes nodes follow the applied design, removes machines that joined when they are drained, and removes an environment that
//! is being destroyed.
//!
//! An apply commits `design/applied` and nothing else. This controller executes it at the replica that holds the lock, also
//! if the replica that served the request fails. Every write is guarded by the lock and by `design/applied`: nodes never
//! return to an earlier design.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::replica::ControllerName;
use muster_core::txn::{Guard, Op, Revision, Txn};
use muster_store::{CommitOutcome, Store, StoreError};
use tokio::time::{Instant, sleep, sleep_until};

use crate::App;
use crate::api::chain;
use crate::design::compiled::DesignRef;
use crate::design::node_records::{Draining, compare, drain, follow_design_while};
use crate::design::self_values::follow_self_values;
use crate::replica::ControllerLock;
use crate::transactions::{MAX_OPS, commit_all, pack};

/// Time until a removal that was refused is decided again, if the view has no step before.
const RETRY: SignedDuration = SignedDuration::from_secs(1);
/// Time until the next attempt after a failure.
const AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct DesignController {
    pub app: App,
}

/// Goal of an environment.
enum DesignGoal {
    /// Follow a revision of the design, applied at a revision of the store.
    Design(DesignRef, Revision),
    /// Remove all nodes, then the environment.
    Destroy(Revision),
}

/// Outcome of a reconciliation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DesignOutcome {
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
        let mut records = self.app.view.subscribe_records();
        let mut steps = self.app.view.subscribe();
        let mut stuck = EnvBackoff::default();
        loop {
            servers.mark_unchanged();
            controller_locks.mark_unchanged();
            records.mark_unchanged();
            steps.mark_unchanged();
            let envs: Vec<EnvName> = self.app.view.fleets().keys().cloned().collect();
            stuck.keep(&envs);
            let (mut waits, mut failed, mut drained) = (false, false, None);
            for env in &envs {
                let Some(held) = self.app.replica.controller_locks.held(env, ControllerName::Design) else {
                    stuck.forget(env);
                    continue;
                };
                match self.remove_drained(&held).await {
                    Ok(next) => {
                        waits |= next.is_some();
                        drained = drained.into_iter().chain(next).min();
                    }
                    Err(error) => {
                        tracing::warn!(%env, error = &error as &dyn Error, "a drained node cannot be removed; retrying");
                        failed = true;
                    }
                }
                let since = self.goal_revision(env);
                if stuck.is_waiting(env, since, Instant::now()) {
                    continue;
                }
                match self.reconcile(&held).await {
                    DesignOutcome::Stuck(cause) => {
                        if stuck.add(env, since, cause.clone(), Instant::now()) {
                            tracing::error!(%env, cause, "the nodes cannot follow the design until an operator acts");
                        }
                        continue;
                    }
                    DesignOutcome::All => {}
                    DesignOutcome::Waits => waits = true,
                    DesignOutcome::Failed => failed = true,
                }
                stuck.forget(env);
            }
            let drained = drained.map(|at| Instant::now() + until(self.app.clock.now(), at));
            let next = stuck.next().into_iter().chain(drained).min();
            tokio::select! {
                _ = servers.changed() => {}
                _ = controller_locks.changed() => {}
                _ = records.changed() => {}
                _ = steps.changed(), if waits => {}
                () = sleep(AGAIN), if failed => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
    }

    /// Removes machines that have joined and are drained. Returns the time at which the next one is removed in any case.
    async fn remove_drained(&self, held: &ControllerLock) -> Result<Option<Timestamp>, StoreError> {
        let Draining { removals, next } = match self.app.view.fleets().get(&held.env) {
            Some(fleet) if fleet.restoring().is_none() => drain(fleet, self.app.clock.now()),
            Some(_) | None => Draining::default(),
        };
        if removals.is_empty() {
            return Ok(next);
        }
        let txns = pack(removals).into_iter().map(|txn| txn.guard(held.guard())).collect();
        let committed = commit_all(&self.app, txns).await?;
        // After a conflict the next step of the view has what was written meanwhile.
        Ok(if committed.complete {
            next
        } else {
            Some(self.app.clock.now().saturating_add(RETRY).unwrap_or(Timestamp::MAX))
        })
    }

    /// Store revision of an environment's goal.
    fn goal_revision(&self, env: &EnvName) -> Option<Revision> {
        let fleets = self.app.view.fleets();
        let fleet = fleets.get(env)?;
        match (fleet.destroying(), &fleet.design().applied) {
            (Some((_, at)), _) | (None, Some((_, at))) => Some(*at),
            (None, None) => None,
        }
    }

    /// Reconciles one environment with its goal.
    async fn reconcile(&self, held: &ControllerLock) -> DesignOutcome {
        let goal = {
            let fleets = self.app.view.fleets();
            let Some(fleet) = fleets.get(&held.env) else { return DesignOutcome::All };
            match (fleet.destroying(), &fleet.design().applied) {
                (Some((_, at)), _) => DesignGoal::Destroy(*at),
                (None, Some((applied, at))) => match DesignRef::find(fleet, Some(applied.revision)) {
                    Ok(design_ref) => DesignGoal::Design(design_ref, *at),
                    Err(error) => return DesignOutcome::Stuck(chain(&error)),
                },
                (None, None) => return DesignOutcome::All,
            }
        };
        match goal {
            DesignGoal::Design(design_ref, at) => self.follow(held, &design_ref, at).await,
            DesignGoal::Destroy(at) => self.destroy(held, at).await,
        }
    }

    async fn follow(&self, held: &ControllerLock, design_ref: &DesignRef, at: Revision) -> DesignOutcome {
        let env = &held.env;
        let design = match self.app.designs.get(env, design_ref).await {
            Ok(design) => design,
            Err(error) => return DesignOutcome::Stuck(chain(&error)),
        };
        if !design.is_usable() {
            // An earlier version of Muster with fewer rules accepted it. Nodes must not change because of that.
            return DesignOutcome::Stuck(format!("their design, number {}, has errors", design_ref.number));
        }
        let applied = Guard::Unchanged { key: Keys::new(env).design_applied(), since: at };
        let guards = [held.guard(), applied];
        if let Err(error) = follow_self_values(&self.app, env, &design.self_texts(), &guards).await {
            return log_failure(env, &error);
        }
        let records = design.records();
        if self.app.view.fleets().get(env).is_some_and(|fleet| compare(fleet, &records).is_nothing()) {
            return DesignOutcome::All;
        }
        match follow_design_while(&self.app, env, &records, &guards).await {
            Ok(change) => {
                let (added, changed) = (change.added.len() + change.returned.len(), change.changed.len());
                let gone = change.leaving.len() + change.removed.len();
                tracing::info!(%env, design = %design_ref.number, added, changed, gone, "nodes follow the design");
                DesignOutcome::All
            }
            Err(error) => log_failure(env, &error),
        }
    }

    /// Decommissions all nodes, then removes the environment.
    async fn destroy(&self, held: &ControllerLock, at: Revision) -> DesignOutcome {
        let env = &held.env;
        let destroying = Guard::Unchanged { key: Keys::new(env).destroying(), since: at };
        let guards = [held.guard(), destroying];
        if let Err(error) = follow_design_while(&self.app, env, &BTreeMap::new(), &guards).await {
            return log_failure(env, &error);
        }
        if self.app.view.fleets().get(env).is_some_and(|fleet| fleet.recorded().next().is_some()) {
            return DesignOutcome::Waits;
        }
        match erase(&*self.app.store, env, &guards).await {
            Ok(EraseOutcome::All { revision }) => {
                self.app.designs.forget(env);
                tracing::warn!(%env, "destroyed");
                if self.app.view.reach(revision).await.is_ok() { DesignOutcome::All } else { DesignOutcome::Failed }
            }
            Ok(EraseOutcome::Overtaken) => DesignOutcome::Failed,
            Err(error) => log_failure(env, &error),
        }
    }
}

fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

fn log_failure(env: &EnvName, error: &(dyn Error + 'static)) -> DesignOutcome {
    tracing::warn!(%env, error, "the nodes cannot follow the design; retrying");
    DesignOutcome::Failed
}

/// First backoff; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// Longest backoff. Short enough to notice a repair soon.
const LONGEST: Duration = Duration::from_secs(30);

/// Environments in backoff, since they need an operator. A cause is logged once.
#[derive(Debug, Default)]
struct EnvBackoff(BTreeMap<EnvName, BackoffEntry>);

#[derive(Debug)]
struct BackoffEntry {
    /// Store revision of the goal (applied design or destruction). A new goal ends the backoff.
    since: Option<Revision>,
    cause: String,
    length: Duration,
    until: Instant,
}

impl EnvBackoff {
    /// Returns true if the environment is in backoff.
    fn is_waiting(&self, env: &EnvName, since: Option<Revision>, now: Instant) -> bool {
        self.0.get(env).is_some_and(|entry| entry.since == since && now < entry.until)
    }

    /// Adds an environment. Returns whether this is news: another cause or another goal.
    fn add(&mut self, env: &EnvName, since: Option<Revision>, cause: String, now: Instant) -> bool {
        let known = self.0.get(env).filter(|entry| entry.since == since && entry.cause == cause);
        let (is_news, length) = (known.is_none(), known.map_or(FIRST, |entry| (entry.length * 2).min(LONGEST)));
        self.0.insert(env.clone(), BackoffEntry { since, cause, length, until: now + length });
        is_news
    }

    fn forget(&mut self, env: &EnvName) {
        self.0.remove(env);
    }

    /// Removes environments that no longer exist.
    fn keep(&mut self, existing: &[EnvName]) {
        self.0.retain(|env, _| existing.contains(env));
    }

    /// End of the earliest backoff.
    fn next(&self) -> Option<Instant> {
        self.0.values().map(|entry| entry.until).min()
    }
}

/// Outcome of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EraseOutcome {
    All {
        revision: Revision,
    },
    /// A guard did not hold: another replica has taken over.
    Overtaken,
}

/// Removes all keys of an environment while the guards hold, in an order that can be interrupted anywhere.
///
/// The mark that it is being destroyed, and the keys that servers need to continue, are removed last, in one transaction.
/// Until then a replica that takes over finds the mark and continues.
async fn erase(store: &dyn Store, env: &EnvName, guards: &[Guard]) -> Result<EraseOutcome, StoreError> {
    let keys = Keys::new(env);
    let all = store.range(keys.prefix(), None).await?.kvs.into_iter().map(|kv| kv.key);
    // Including the epoch: a later environment of the same name begins a later one.
    let is_last = |key: &String| {
        let rest = key.strip_prefix(keys.prefix()).unwrap_or(key);
        ["destroying", "store_epoch"].contains(&rest)
            || rest.starts_with("controllers/")
            || rest.starts_with("replicas/")
    };
    let (mut last, first): (Vec<String>, Vec<String>) = all.partition(is_last);
    // A server may have created a lock since the keys were read.
    last.extend(ControllerName::ALL.map(|name| keys.controller(name)));
    last.sort_unstable();
    last.dedup();
    let txn = |keys: &[String]| Txn { guards: guards.to_vec(), ops: keys.iter().map(Op::delete).collect() };
    for part in first.chunks(MAX_OPS) {
        if let CommitOutcome::Conflict { .. } = store.commit(txn(part)).await? {
            return Ok(EraseOutcome::Overtaken);
        }
    }
    // There are few servers: these keys fit into one transaction.
    Ok(match store.commit(txn(&last)).await? {
        CommitOutcome::Committed { revision } => EraseOutcome::All { revision },
        CommitOutcome::Conflict { .. } => EraseOutcome::Overtaken,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_and_a_cause_is_news_once() {
        let env = EnvName::new("prod").unwrap();
        let (begin, since) = (Instant::now(), Some(Revision(7)));
        let mut stuck = EnvBackoff::default();
        assert!(!stuck.is_waiting(&env, since, begin) && stuck.next().is_none());
        assert!(stuck.add(&env, since, "no blob".into(), begin));
        assert_eq!(stuck.next(), Some(begin + FIRST));
        // Steps of the view do not end the backoff.
        assert!(stuck.is_waiting(&env, since, begin + FIRST / 2));
        assert!(!stuck.is_waiting(&env, since, begin + FIRST));
        assert!(!stuck.add(&env, since, "no blob".into(), begin), "it was logged");
        assert_eq!(stuck.next(), Some(begin + FIRST * 2));
        for _ in 0..10 {
            stuck.add(&env, since, "no blob".into(), begin);
        }
        assert_eq!(stuck.next(), Some(begin + LONGEST));
        assert!(stuck.add(&env, since, "another blob".into(), begin));
        assert_eq!(stuck.next(), Some(begin + FIRST));

        let later = Some(Revision(8));
        assert!(!stuck.is_waiting(&env, later, begin), "there is something else to follow");
        assert!(stuck.add(&env, later, "another blob".into(), begin));
        stuck.forget(&env);
        assert!(!stuck.is_waiting(&env, later, begin));
        stuck.add(&env, later, "no blob".into(), begin);
        stuck.keep(&[]);
        assert_eq!(stuck.next(), None);
    }
}
