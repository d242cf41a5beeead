//! The controllers that this replica holds, each in one environment, and the fence around what they write.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::fleet::Fleet;
use muster_core::names::{EnvName, ReplicaId};
use muster_core::replica::controller_lock::{ControllerLock, LockClaim, LockInput, LockStep, ReplicaLease, decide};
use muster_core::replica::{ControllerName, ControllerRecord};
use muster_core::txn::{LeaseId, Revision, Txn};
use muster_store::{CommitOutcome, Store, StoreError};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::membership::Membership;
use crate::clock::Clock;
use crate::view::View;

/// After a failure the next try comes this soon.
const AGAIN: Duration = Duration::from_millis(500);
/// Replicas that all see a controller become free try at different moments within this.
const JITTER_MS: u64 = 200;

/// What every server looks after in each environment.
const EVERYWHERE: [ControllerName; 3] = [ControllerName::Leaders, ControllerName::Liveness, ControllerName::Rollout];

type Place = (EnvName, ControllerName);

fn place(held: &ControllerLock) -> Place {
    (held.env.clone(), held.name)
}

/// What became of a controller's write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FencedOutcome {
    Committed {
        revision: Revision,
    },
    /// What it was decided on has changed: decide again.
    Refused {
        revision: Revision,
    },
    /// The controller is held by somebody else, or this replica is cut off: do nothing more.
    Deposed,
}

#[derive(Debug)]
pub struct ControllerLocks {
    store: Arc<dyn Store>,
    view: Arc<View>,
    membership: Arc<Membership>,
    clock: Clock,
    inner: Mutex<Inner>,
    /// Steps when a controller was taken or lost.
    changed: watch::Sender<u64>,
    /// Somebody wants another controller, or has found out that one is lost.
    look: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// What is wanted besides what every server looks after everywhere, and the design, where there is one.
    wanted: BTreeSet<Place>,
    held: BTreeMap<Place, ControllerLock>,
    /// Where a write was refused, under which lease, and at which revision.
    refused: BTreeMap<Place, (LeaseId, Revision)>,
    /// Environments that are being restored: whatever is written there is of another life a moment later.
    restoring: BTreeSet<EnvName>,
}

impl ControllerLocks {
    pub fn new(store: Arc<dyn Store>, view: Arc<View>, membership: Arc<Membership>, clock: Clock) -> Self {
        let (inner, changed) = (Mutex::default(), watch::Sender::new(0));
        Self { store, view, membership, clock, inner, changed, look: Notify::new() }
    }

    /// Tells when a controller was taken or lost.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Takes a controller as soon as nobody else holds it, and for as long as this server lives.
    pub fn want(&self, env: &EnvName, name: ControllerName) {
        self.inner().wanted.insert((env.clone(), name));
        self.look.notify_one();
    }

    /// The controller, if this replica holds it and may act. Nobody acts in an environment that is being restored.
    pub fn held(&self, env: &EnvName, name: ControllerName) -> Option<ControllerLock> {
        let current = self.membership.current()?;
        let inner = self.inner();
        let held = inner.held.get(&(env.clone(), name)).cloned();
        held.filter(|held| held.lease == current.lease && !inner.restoring.contains(env))
    }

    /// Who else holds a controller, and since when.
    pub fn held_elsewhere(&self, env: &EnvName, name: ControllerName) -> Option<ControllerRecord> {
        let fleets = self.view.fleets();
        let (record, _) = fleets.get(env)?.controllers().get(&name)?;
        (record.replica != *self.membership.id()).then(|| record.clone())
    }

    /// Commits a write of a controller, if this replica still holds it at the moment at which it is committed.
    pub async fn commit(&self, held: &ControllerLock, txn: Txn) -> Result<FencedOutcome, StoreError> {
        if self.held(&held.env, held.name).as_ref() != Some(held) {
            return Ok(FencedOutcome::Deposed);
        }
        let guard = held.guard();
        let key = guard.key().to_owned();
        Ok(match self.store.commit(txn.guard(guard)).await? {
            CommitOutcome::Committed { revision } => FencedOutcome::Committed { revision },
            CommitOutcome::Conflict { revision, failed } if failed.contains(&key) => {
                self.deposed(held, revision);
                FencedOutcome::Deposed
            }
            CommitOutcome::Conflict { revision, .. } => FencedOutcome::Refused { revision },
        })
    }

    /// Takes and keeps controllers, for ever.
    pub async fn run(&self) {
        let (mut servers, mut members) = (self.view.subscribe_servers(), self.membership.subscribe());
        loop {
            servers.mark_unchanged();
            members.mark_unchanged();
            let settled = self.look().await;
            let changed = async {
                tokio::select! {
                    _ = servers.changed() => {}
                    // Who may act by the clock of this process has changed, whether or not a key has.
                    _ = members.changed() => self.step(),
                    () = self.look.notified() => {}
                }
            };
            if settled {
                changed.await;
            } else {
                let _ = timeout(AGAIN, changed).await;
            }
        }
    }

    /// Goes through all controllers once. Whether there is nothing to do before something changes.
    async fn look(&self) -> bool {
        let free = self.settle();
        if free.is_empty() {
            return !self.awaits_the_view();
        }
        if free.iter().any(|take| take.contended) {
            sleep(Duration::from_millis(RandomState::new().hash_one(self.membership.id()) % JITTER_MS)).await;
        }
        let mut settled = true;
        for take in self.settle() {
            settled &= self.take(take).await;
        }
        settled && !self.awaits_the_view()
    }

    /// Whether the view has yet to show why a write was refused. It may get there by a step that concerns no server, a
    /// report for instance, and nobody is woken by those.
    fn awaits_the_view(&self) -> bool {
        !self.inner().refused.is_empty()
    }

    /// Notes what the view shows of every controller, and returns those that are to be taken.
    fn settle(&self) -> Vec<Take> {
        let fleets = self.view.fleets();
        let mut inner = self.inner();
        let designed = fleets.values().filter(|fleet| fleet.needs_design_controller());
        let places: BTreeSet<Place> = fleets
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
        // Whoever could not act may be able to now.
        let mut moved = std::mem::replace(&mut inner.restoring, restoring.clone()) != restoring;
        // What the view has reached needs no more waiting for. Nor does what was refused under an earlier lease: nothing
        // of that time is taken for ours, and a store that was put back may never get to that revision.
        let lease = self.membership.current().map(|current| current.lease);
        inner.refused.retain(|(env, _), (under, at)| {
            lease == Some(*under) && fleets.get(env).is_some_and(|fleet| fleet.revision < *at)
        });
        for place in places {
            let fleet = fleets.get(&place.0);
            let mut step = decide(self.sight(fleet, &place, &inner));
            if step == LockStep::Drop {
                let held = inner.held.remove(&place);
                moved = true;
                tracing::info!(env = %place.0, controller = %place.1, ?held, "no longer held by this replica");
                step = decide(self.sight(fleet, &place, &inner));
            }
            match step {
                LockStep::Keep | LockStep::Wait | LockStep::Drop => {}
                LockStep::Adopt { at, lease } => {
                    inner.refused.remove(&place);
                    inner.held.insert(place.clone(), self.holding(place, at, lease));
                    moved = true;
                }
                LockStep::Take { over } => {
                    let Some((fleet, my_key)) = fleet.and_then(|fleet| Some((fleet, self.my_key(fleet)?))) else {
                        continue;
                    };
                    takes.push(Take { place, over, my_key, contended: fleet.replicas().len() > 1 });
                }
            }
        }
        drop(inner);
        drop(fleets);
        if moved {
            self.step();
        }
        takes
    }

    fn sight<'a>(&'a self, fleet: Option<&'a Fleet>, place: &Place, inner: &Inner) -> LockInput<'a> {
        let holder = fleet.and_then(|fleet| fleet.controllers().get(&place.1));
        let lives = |id: &ReplicaId| fleet.is_some_and(|fleet| fleet.replicas().contains_key(id));
        LockInput {
            me: self.membership.id(),
            current: self.membership.current(),
            my_key: fleet.and_then(|fleet| self.my_key(fleet)),
            holder: holder.map(|(record, at)| (&record.replica, *at)),
            holder_lives: holder.is_some_and(|(record, _)| lives(&record.replica)),
            held: inner.held.get(place).map(|held| (held.lease, held.revision)),
            refused: inner.refused.get(place).map(|(_, at)| *at),
            view: fleet.map(|fleet| fleet.revision).unwrap_or_default(),
        }
    }

    fn my_key(&self, fleet: &Fleet) -> Option<Revision> {
        fleet.replicas().get(self.membership.id()).map(|(_, at)| *at)
    }

    /// Takes a controller. Whether that is settled, one way or the other.
    async fn take(&self, take: Take) -> bool {
        let Some(ReplicaLease { lease, .. }) = self.membership.current() else { return true };
        let (env, name) = &take.place;
        let taking = LockClaim {
            env,
            name: *name,
            me: self.membership.id(),
            lease,
            my_key: take.my_key,
            over: take.over.clone(),
            now: self.clock.now(),
        };
        let txn = match taking.txn() {
            Ok(txn) => txn,
            Err(error) => {
                tracing::error!(%error, "the record of a controller's holder cannot be written");
                return true;
            }
        };
        match self.store.commit(txn).await {
            Ok(CommitOutcome::Committed { revision }) => {
                tracing::info!(%env, controller = %name, "held by this replica");
                let held = self.holding(take.place.clone(), revision, lease);
                self.inner().held.insert(take.place, held);
                self.step();
                true
            }
            // Somebody was quicker: the view shows who.
            Ok(CommitOutcome::Conflict { .. }) => true,
            // Whether it was taken after an unknown outcome, the view shows.
            Err(error) => {
                tracing::debug!(%env, controller = %name, %error, "a controller cannot be taken");
                false
            }
        }
    }

    fn holding(&self, (env, name): Place, revision: Revision, lease: LeaseId) -> ControllerLock {
        ControllerLock { env, name, revision, lease, since: self.clock.now() }
    }

    fn deposed(&self, held: &ControllerLock, at: Revision) {
        let mut inner = self.inner();
        if inner.held.get(&place(held)) == Some(held) {
            inner.held.remove(&place(held));
            inner.refused.insert(place(held), (held.lease, at));
        }
        drop(inner);
        tracing::warn!(env = %held.env, controller = %held.name, "another replica holds it: this one does no more");
        self.step();
        self.look.notify_one();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self) {
        self.changed.send_modify(|steps| *steps += 1);
    }
}

/// A controller that is free.
#[derive(Debug)]
struct Take {
    place: Place,
    over: Option<(ReplicaId, Revision)>,
    my_key: Revision,
    contended: bool,
}
