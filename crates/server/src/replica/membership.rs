//! The lease of this replica, and its key in every environment.
//!
//! Level-triggered: whenever the view shows an environment without this replica's key, the key is put again. A lease
//! that has ended is replaced by a new one, and with it everything is put anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, ReplicaId};
use muster_core::replica::ReplicaRecord;
use muster_core::replica::controller_lock::ReplicaLease;
use muster_core::txn::{Guard, LeaseId, Op, Revision, Txn};
use muster_store::{CommitOutcome, Sharing, Store, StoreError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::identity::Identity;
use crate::clock::Clock;
use crate::view::View;

/// After a failure the next try comes this soon.
const AGAIN: Duration = Duration::from_millis(500);
/// A server that stops does not wait longer than this for the store to hear of it: the lease ends by itself.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long the lease lives, and how often it is kept alive.
#[derive(Clone, Copy, Debug)]
pub struct LeasePace {
    pub ttl: Duration,
    pub keep_every: Duration,
}

impl Default for LeasePace {
    /// Two keep-alives may be lost before the lease ends; and whoever waits for a dead replica's controllers waits ten
    /// seconds.
    fn default() -> Self {
        Self { ttl: Duration::from_secs(10), keep_every: Duration::from_secs(3) }
    }
}

/// Whether this replica may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipState {
    /// It has no lease yet.
    Joining,
    /// It has one, and has kept it in time.
    Member,
    /// It could not keep its lease alive: others may have taken over, and it must not act.
    CutOff,
}

#[derive(Debug)]
pub struct Membership {
    identity: Identity,
    pace: LeasePace,
    store: Arc<dyn Store>,
    view: Arc<View>,
    clock: Clock,
    inner: Mutex<Inner>,
    /// Steps when the state may be another one.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    current: Option<ReplicaLease>,
    /// By this process's own clock, counted from when the last keep-alive was *sent*: the lease lives at least as long.
    good_until: Option<Instant>,
    /// Since when the store has not answered.
    unreachable: Option<Timestamp>,
}

impl Inner {
    fn state(&self) -> MembershipState {
        match (self.current, self.good_until) {
            (Some(_), Some(until)) if Instant::now() < until => MembershipState::Member,
            (None, None) => MembershipState::Joining,
            (_, Some(_)) | (Some(_), None) => MembershipState::CutOff,
        }
    }
}

impl Membership {
    pub fn new(identity: Identity, pace: LeasePace, store: Arc<dyn Store>, view: Arc<View>, clock: Clock) -> Self {
        let (inner, changed) = (Mutex::default(), watch::Sender::new(0));
        Self { identity, pace, store, view, clock, inner, changed }
    }

    pub fn id(&self) -> &ReplicaId {
        &self.identity.id
    }

    pub fn record(&self) -> &ReplicaRecord {
        &self.identity.record
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub fn state(&self) -> MembershipState {
        self.inner().state()
    }

    /// The lease, as long as it surely lives.
    pub fn current(&self) -> Option<ReplicaLease> {
        let inner = self.inner();
        inner.current.filter(|_| inner.state() == MembershipState::Member)
    }

    /// Since when the store has not answered; none while it does.
    pub fn store_unreachable_since(&self) -> Option<Timestamp> {
        self.inner().unreachable
    }

    /// Ends what earlier replicas have left, on a store that this process has for itself: they are certainly gone, and
    /// nobody has to wait for their leases. On a store that others may use, nothing is ended: they may live.
    pub async fn clear_predecessors(&self) -> Result<Sharing, StoreError> {
        if self.store.sharing() == Sharing::Shared {
            return Ok(Sharing::Shared);
        }
        let left: Vec<String> = {
            let fleets = self.view.fleets();
            let of = |env: &EnvName, id: &ReplicaId| Keys::new(env).replica(id);
            fleets.values().flat_map(|fleet| fleet.replicas().keys().map(|id| of(&fleet.env, id))).collect()
        };
        for key in left {
            let Some(kv) = self.store.get(&key).await? else { continue };
            match kv.lease {
                Some(lease) => match self.store.revoke(lease).await {
                    Ok(()) | Err(StoreError::LeaseEnded { .. }) => {}
                    Err(error) => return Err(error),
                },
                // Brought here by somebody's copy: no lease will ever take it away.
                None => {
                    self.store.commit(Txn::new().op(Op::delete(key))).await?;
                }
            }
        }
        Ok(Sharing::Exclusive)
    }

    /// Keeps this replica a member, for ever.
    pub async fn run(&self) {
        loop {
            let Some(current) = self.grant().await else {
                sleep(AGAIN).await;
                continue;
            };
            tokio::select! {
                () = self.keep(current) => {}
                () = self.place(current.lease) => {}
            }
            tracing::warn!(replica = %self.id(), "the lease of this replica has ended: a new one is taken");
            self.note(|inner| inner.current = None);
        }
    }

    /// Gives the lease back: the others take over at once.
    pub async fn leave(&self) {
        let current = {
            let mut inner = self.inner();
            inner.good_until = None;
            inner.current.take()
        };
        self.step();
        let Some(ReplicaLease { lease, .. }) = current else { return };
        match timeout(FAREWELL, self.store.revoke(lease)).await {
            Ok(Ok(()) | Err(StoreError::LeaseEnded { .. } | StoreError::Closed)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the lease cannot be given back, and ends by itself"),
            Err(_) => tracing::warn!("the store does not answer: the lease ends by itself"),
        }
    }

    async fn grant(&self) -> Option<ReplicaLease> {
        let mut sent = Instant::now();
        let granted = async {
            let after = self.store.revision().await?;
            sent = Instant::now();
            let lease = self.store.grant(self.pace.ttl).await?;
            Ok::<_, StoreError>(ReplicaLease { lease: lease.id, after })
        };
        match timeout(self.pace.ttl, granted).await {
            Ok(Ok(current)) => {
                self.kept(current, sent);
                Some(current)
            }
            Ok(Err(error)) => {
                self.missed(&error);
                None
            }
            Err(silence) => {
                self.missed(&silence);
                None
            }
        }
    }

    /// Keeps the lease alive until it has ended.
    async fn keep(&self, current: ReplicaLease) {
        let mut next = Instant::now() + self.pace.keep_every;
        loop {
            sleep_until(next).await;
            let sent = Instant::now();
            match timeout(self.pace.keep_every, self.store.keep_alive(current.lease)).await {
                Ok(Ok(())) => {
                    self.kept(current, sent);
                    next = sent + self.pace.keep_every;
                }
                Ok(Err(StoreError::LeaseEnded { .. })) => return,
                Ok(Err(error)) => {
                    self.missed(&error);
                    next = Instant::now() + AGAIN;
                }
                Err(silence) => {
                    self.missed(&silence);
                    next = Instant::now() + AGAIN;
                }
            }
        }
    }

    /// Puts this replica's key wherever it is missing, until the lease has ended.
    async fn place(&self, lease: LeaseId) {
        let mut servers = self.view.subscribe_servers();
        loop {
            servers.mark_unchanged();
            let mut all_placed = true;
            for (env, seen) in self.missing() {
                match self.put(&env, seen, lease).await {
                    Ok(CommitOutcome::Committed { .. }) => {}
                    // The view is about to show why.
                    Ok(CommitOutcome::Conflict { .. }) => all_placed = false,
                    Err(StoreError::LeaseEnded { .. }) => return,
                    Err(error) => {
                        all_placed = false;
                        tracing::debug!(%env, %error, "this replica cannot make itself known");
                    }
                }
            }
            if all_placed {
                let _ = servers.changed().await;
            } else {
                let _ = timeout(AGAIN, servers.changed()).await;
            }
        }
    }

    /// The environments that do not show this replica, each with the revision of what they show in its place.
    fn missing(&self) -> Vec<(EnvName, Option<Revision>)> {
        let fleets = self.view.fleets();
        let founded = fleets.values().filter(|fleet| fleet.is_founded());
        let shown = founded.map(|fleet| (fleet, fleet.replicas().get(self.id())));
        let missing = shown.filter(|(_, shown)| shown.is_none_or(|(record, _)| record != self.record()));
        missing.map(|(fleet, shown)| (fleet.env.clone(), shown.map(|(_, at)| *at))).collect()
    }

    async fn put(&self, env: &EnvName, seen: Option<Revision>, lease: LeaseId) -> Result<CommitOutcome, StoreError> {
        let key = Keys::new(env).replica(self.id());
        let op = Op::Put { key: key.clone(), value: self.identity.text.clone(), lease: Some(lease) };
        self.store.commit(Txn::new().guard(Guard::observed(key, seen)).op(op)).await
    }

    fn kept(&self, current: ReplicaLease, sent: Instant) {
        let was = self.state();
        let mut inner = self.inner();
        inner.current = Some(current);
        inner.good_until = Some(sent + self.pace.ttl);
        inner.unreachable = None;
        drop(inner);
        if was != self.state() {
            tracing::info!(replica = %self.id(), "this replica is a member");
            self.step();
        }
    }

    fn missed(&self, error: &dyn std::error::Error) {
        tracing::warn!(replica = %self.id(), %error, "the store does not take this replica's sign of life");
        let now = self.clock.now();
        self.note(|inner| {
            inner.unreachable.get_or_insert(now);
        });
    }

    fn note(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.inner());
        self.step();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self) {
        self.changed.send_modify(|steps| *steps += 1);
    }
}
