//! Locks of the controllers that this replica holds, each in one environment, and the fence of their writes.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::fleet::Fleet;
use muster_core::names::{EnvName, ReplicaId};
use muster_core::replica::controller_lock::{ControllerLock, LockClaim, LockInput, LockStep, ReplicaLease, decide};
use muster_core::replica::{ControllerName, ControllerRecord};
use muster_core::txn::{LeaseId, Revision, Txn, ValuesBefore};
use muster_store::{CommitOutcome, StoreError};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::membership::Membership;
use crate::app::Clock;
use crate::audit::{AuditedStore, Origin};
use crate::view::View;

/// Delay before a failed request is retried.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Replicas that see a free lock at the same time wait a random time below this.
const JITTER_MS: u64 = 200;

/// The controllers that run in every environment.
const EVERYWHERE: [ControllerName; 3] = [ControllerName::Leaders, ControllerName::Liveness, ControllerName::Rollout];

/// A controller of an environment.
type LockKey = (EnvName, ControllerName);

fn lock_key(held: &ControllerLock) -> LockKey {
    (held.env.clone(), held.name)
}

/// Result of a controller's write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FencedOutcome {
    Committed {
        revision: Revision,
    },
    /// The state that the write was decided on has changed: decide again.
    Refused {
        revision: Revision,
    },
    /// Another replica holds the lock, or this replica is cut off: stop to act.
    LockLost,
}

/// Controller locks of this replica.
#[derive(Debug)]
pub struct ControllerLocks {
    store: AuditedStore,
    view: Arc<View>,
    membership: Arc<Membership>,
    clock: Clock,
    inner: Mutex<Inner>,
    /// Changes when a lock was acquired or lost.
    changed: watch::Sender<u64>,
    /// A further lock is wanted, or one was found to be lost.
    recheck: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// Locks that are wanted in addition to those of [`EVERYWHERE`] and of the design controller.
    wanted: BTreeSet<LockKey>,
    held: BTreeMap<LockKey, ControllerLock>,
    /// Locks with a refused write, the lease at that time, and the revision of the refusal.
    refused: BTreeMap<LockKey, (LeaseId, Revision)>,
    /// Environments that are being restored: no controller may write there.
    restoring: BTreeSet<EnvName>,
}

impl ControllerLocks {
    pub(crate) fn new(store: AuditedStore, view: Arc<View>, membership: Arc<Membership>, clock: Clock) -> Self {
        let (inner, changed) = (Mutex::default(), watch::Sender::new(0));
        Self { store, view, membership, clock, inner, changed, recheck: Notify::new() }
    }

    /// Subscribes to acquired and lost locks.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Acquires a lock as soon as it is free, and holds it until the server stops.
    pub fn want(&self, env: &EnvName, name: ControllerName) {
        self.inner().wanted.insert((env.clone(), name));
        self.recheck.notify_one();
    }

    /// The lock, if this replica holds it and may act. No controller acts in an environment that is being restored.
    pub fn held(&self, env: &EnvName, name: ControllerName) -> Option<ControllerLock> {
        let current = self.membership.current()?;
        let inner = self.inner();
        let held = inner.held.get(&(env.clone(), name)).cloned();
        held.filter(|held| held.lease == current.lease && !inner.restoring.contains(env))
    }

    /// The other replica that holds a lock, and since when.
    pub fn held_elsewhere(&self, env: &EnvName, name: ControllerName) -> Option<ControllerRecord> {
        let fleets = self.view.fleets();
        let (record, _) = fleets.get(env)?.controllers().get(&name)?;
        (record.replica != *self.membership.id()).then(|| record.clone())
    }

    /// Commits a write of a controller, if this replica still holds the lock at that moment.
    pub async fn commit(&self, held: &ControllerLock, txn: Txn) -> Result<FencedOutcome, StoreError> {
        self.commit_knowing(held, txn, None).await
    }

    /// The same for a controller that may know the values before the transaction: those that hold if its guards do.
    pub(crate) async fn commit_knowing(
        &self,
        held: &ControllerLock,
        txn: Txn,
        before: Option<ValuesBefore>,
    ) -> Result<FencedOutcome, StoreError> {
        if self.held(&held.env, held.name).as_ref() != Some(held) {
            return Ok(FencedOutcome::LockLost);
        }
        let guard = held.guard();
        let key = guard.key().to_owned();
        let origin = Arc::new(Origin::controller(held.name, self.membership.id()));
        Ok(match self.store.with_origin(origin).commit_knowing(txn.guard(guard), before).await? {
            CommitOutcome::Committed { revision } => FencedOutcome::Committed { revision },
            CommitOutcome::Conflict { revision, failed } if failed.contains(&key) => {
                self.lock_lost(held, revision);
                FencedOutcome::LockLost
            }
            CommitOutcome::Conflict { revision, .. } => FencedOutcome::Refused { revision },
        })
    }

    /// Acquires and keeps locks, forever.
    pub async fn run(&self) {
        let (mut servers, mut members) = (self.view.subscribe_servers(), self.membership.subscribe());
        loop {
            servers.mark_unchanged();
            members.mark_unchanged();
            let settled = self.reconcile().await;
            let changed = async {
                tokio::select! {
                    _ = servers.changed() => {}
                    // Whether this replica may act has changed, with or without a change of a key.
                    _ = members.changed() => self.notify(),
                    () = self.recheck.notified() => {}
                }
            };
            if settled {
                changed.await;
            } else {
                let _ = timeout(RETRY_DELAY, changed).await;
            }
        }
    }

    /// Checks all locks once. Returns whether there is nothing to do until something changes.
    async fn reconcile(&self) -> bool {
        let free = self.update_from_view();
        if free.is_empty() {
            return !self.awaits_view();
        }
        if free.iter().any(|take| take.contended) {
            sleep(Duration::from_millis(RandomState::new().hash_one(self.membership.id()) % JITTER_MS)).await;
        }
        let mut settled = true;
        for take in self.update_from_view() {
            settled &= self.acquire(take).await;
        }
        settled && !self.awaits_view()
    }

    /// Returns whether the view does not show yet why a write was refused. The view may reach that revision with a change
    /// that wakes no subscriber here, a report for instance.
    fn awaits_view(&self) -> bool {
        !self.inner().refused.is_empty()
    }

    /// Applies what the view shows of every lock, and returns the free ones.
    fn update_from_view(&self) -> Vec<FreeLock> {
        let fleets = self.view.fleets();
        let mut inner = self.inner();
        let designed = fleets.values().filter(|fleet| fleet.needs_design_controller());
        let locks: BTreeSet<LockKey> = fleets
            .values()
            .filter(|fleet| fleet.is_founded())
            .flat_map(|fleet| EVERYWHERE.map(|name| (fleet.env.clone(), name)))
            .chain(designed.map(|fleet| (fleet.env.clone(), ControllerName::Design)))
            .chain(inner.wanted.iter().cloned())
            .chain(inner.held.keys().cloned())
            .collect();
        let mut takes = Vec::new();
        let restoring = fleets.values().filter(|fleet| fleet.restoring().is_some()).map(|fleet| fleet.env.clone());
        let restoring: BTreeSet<EnvName> = restoring.collect();
        // Controllers of an environment whose restore has ended may act again.
        let mut moved = std::mem::replace(&mut inner.restoring, restoring.clone()) != restoring;
        // A refusal is settled when the view has reached it, or when it was under an earlier lease: a restored store may
        // never reach that revision.
        let lease = self.membership.current().map(|current| current.lease);
        inner.refused.retain(|(env, _), (under, at)| {
            lease == Some(*under) && fleets.get(env).is_some_and(|fleet| fleet.revision < *at)
        });
        for key in locks {
            let fleet = fleets.get(&key.0);
            let mut step = decide(self.lock_input(fleet, &key, &inner));
            if step == LockStep::Drop {
                let held = inner.held.remove(&key);
                moved = true;
                tracing::info!(env = %key.0, controller = %key.1, ?held, "the controller lock is no longer held by this replica");
                step = decide(self.lock_input(fleet, &key, &inner));
            }
            match step {
                LockStep::Keep | LockStep::Wait | LockStep::Drop => {}
                LockStep::Adopt { at, lease } => {
                    inner.refused.remove(&key);
                    inner.held.insert(key.clone(), self.holding(key, at, lease));
                    moved = true;
                }
                LockStep::Take { over } => {
                    let Some((fleet, my_key)) = fleet.and_then(|fleet| Some((fleet, self.my_key(fleet)?))) else {
                        continue;
                    };
                    takes.push(FreeLock { key, over, my_key, contended: fleet.replicas().len() > 1 });
                }
            }
        }
        drop(inner);
        drop(fleets);
        if moved {
            self.notify();
        }
        takes
    }

    fn lock_input<'a>(&'a self, fleet: Option<&'a Fleet>, key: &LockKey, inner: &Inner) -> LockInput<'a> {
        let holder = fleet.and_then(|fleet| fleet.controllers().get(&key.1));
        let lives = |id: &ReplicaId| fleet.is_some_and(|fleet| fleet.replicas().contains_key(id));
        LockInput {
            me: self.membership.id(),
            current: self.membership.current(),
            my_key: fleet.and_then(|fleet| self.my_key(fleet)),
            holder: holder.map(|(record, at)| (&record.replica, *at)),
            holder_lives: holder.is_some_and(|(record, _)| lives(&record.replica)),
            held: inner.held.get(key).map(|held| (held.lease, held.revision)),
            refused: inner.refused.get(key).map(|(_, at)| *at),
            view: fleet.map(|fleet| fleet.revision).unwrap_or_default(),
        }
    }

    fn my_key(&self, fleet: &Fleet) -> Option<Revision> {
        fleet.replicas().get(self.membership.id()).map(|(_, at)| *at)
    }

    /// Acquires a lock. Returns whether the outcome is known.
    async fn acquire(&self, take: FreeLock) -> bool {
        let Some(ReplicaLease { lease, .. }) = self.membership.current() else { return true };
        let (env, name) = &take.key;
        let claim = LockClaim {
            env,
            name: *name,
            me: self.membership.id(),
            lease,
            my_key: take.my_key,
            over: take.over.clone(),
            now: self.clock.now(),
        };
        let txn = match claim.txn() {
            Ok(txn) => txn,
            Err(error) => {
                tracing::error!(%error, "the record of a controller lock cannot be encoded");
                return true;
            }
        };
        match self.store.commit(txn).await {
            Ok(CommitOutcome::Committed { revision }) => {
                tracing::info!(%env, controller = %name, "the controller lock is held by this replica");
                let held = self.holding(take.key.clone(), revision, lease);
                self.inner().held.insert(take.key, held);
                self.notify();
                true
            }
            // Another replica was first: the view will show which.
            Ok(CommitOutcome::Conflict { .. }) => true,
            // After an unknown outcome the view will show whether it was acquired.
            Err(error) => {
                tracing::debug!(%env, controller = %name, %error, "a controller lock cannot be acquired");
                false
            }
        }
    }

    fn holding(&self, (env, name): LockKey, revision: Revision, lease: LeaseId) -> ControllerLock {
        ControllerLock { env, name, revision, lease, since: self.clock.now() }
    }

    fn lock_lost(&self, held: &ControllerLock, at: Revision) {
        let mut inner = self.inner();
        if inner.held.get(&lock_key(held)) == Some(held) {
            inner.held.remove(&lock_key(held));
            inner.refused.insert(lock_key(held), (held.lease, at));
        }
        drop(inner);
        tracing::warn!(env = %held.env, controller = %held.name, "another replica holds the controller lock: this one stops to act");
        self.notify();
        self.recheck.notify_one();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.changed.send_modify(|steps| *steps += 1);
    }
}

/// A lock that this replica may acquire.
#[derive(Debug)]
struct FreeLock {
    key: LockKey,
    over: Option<(ReplicaId, Revision)>,
    my_key: Revision,
    contended: bool,
}
