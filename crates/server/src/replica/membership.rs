//! The lease of this replica, and its key in every environment.
//!
//! Level-triggered: whenever the view shows an environment without this replica's key, the key is written again. A lease
//! that has expired is replaced by a new one, and all keys are written again with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use muster_core::authority::AuthorityPin;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, ReplicaId, SecretKeyId};
use muster_core::replica::ReplicaRecord;
use muster_core::replica::controller_lock::ReplicaLease;
use muster_core::txn::{Guard, LeaseId, Op, Revision, Txn};
use muster_store::{CommitOutcome, Sharing, Store, StoreError};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::identity::Identity;
use crate::app::Clock;
use crate::view::View;

/// Delay before a failed request is retried.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Time that a stopping server waits for the store to revoke its lease. Otherwise the lease expires.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// TTL of the lease, and the interval of its renewal.
#[derive(Clone, Copy, Debug)]
pub struct LeasePace {
    pub ttl: Duration,
    pub keep_every: Duration,
}

impl Default for LeasePace {
    /// Two renewals may be lost before the lease expires, and the controllers of a dead replica are free after 10 s.
    fn default() -> Self {
        Self { ttl: Duration::from_secs(10), keep_every: Duration::from_secs(3) }
    }
}

/// Membership of this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipState {
    /// The replica has no lease yet.
    Joining,
    /// The replica has a lease, and has renewed it in time: it may act.
    Member,
    /// The lease could not be renewed. Another replica may have taken over: this one must not act.
    CutOff,
}

/// Lease and keys of this replica.
#[derive(Debug)]
pub struct Membership {
    id: ReplicaId,
    /// The record, and its text in the store.
    record: Mutex<(ReplicaRecord, Vec<u8>)>,
    /// Wakes the writer of the keys after a change of the record.
    record_changed: Notify,
    pace: LeasePace,
    store: Arc<dyn Store>,
    view: Arc<View>,
    clock: Clock,
    inner: Mutex<Inner>,
    /// Changes when the state may have changed.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    current: Option<ReplicaLease>,
    /// By this process's own clock, counted from when the last renewal was *sent*: the lease lives at least as long.
    valid_until: Option<Instant>,
    /// Time since which the store does not answer.
    unreachable: Option<Timestamp>,
}

impl Inner {
    fn state(&self) -> MembershipState {
        match (self.current, self.valid_until) {
            (Some(_), Some(until)) if Instant::now() < until => MembershipState::Member,
            (None, None) => MembershipState::Joining,
            (_, Some(_)) | (Some(_), None) => MembershipState::CutOff,
        }
    }
}

impl Membership {
    pub fn new(identity: Identity, pace: LeasePace, store: Arc<dyn Store>, view: Arc<View>, clock: Clock) -> Self {
        let (inner, changed) = (Mutex::default(), watch::Sender::new(0));
        let Identity { id, record, text } = identity;
        let (record, record_changed) = (Mutex::new((record, text)), Notify::new());
        Self { id, record, record_changed, pace, store, view, clock, inner, changed }
    }

    pub fn id(&self) -> &ReplicaId {
        &self.id
    }

    pub fn record(&self) -> ReplicaRecord {
        self.encoded_record().0
    }

    fn encoded_record(&self) -> (ReplicaRecord, Vec<u8>) {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells the other replicas with which keys this one opens secrets.
    pub(crate) fn set_secret_keys(&self, keys: Vec<SecretKeyId>) {
        self.change_record(|record| record.secret_keys = keys);
    }

    /// Tells the other replicas which certificate authorities this one has the keys of.
    pub(crate) fn set_authorities(&self, pins: Vec<AuthorityPin>) {
        if self.record().authorities != pins {
            self.change_record(|record| record.authorities = pins);
        }
    }

    fn change_record(&self, change: impl FnOnce(&mut ReplicaRecord)) {
        let mut known = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record = known.0.clone();
        change(&mut record);
        match serde_json::to_vec(&record) {
            Ok(text) => *known = (record, text),
            Err(error) => tracing::error!(%error, "the record of this replica cannot be encoded"),
        }
        drop(known);
        self.record_changed.notify_one();
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub fn state(&self) -> MembershipState {
        self.inner().state()
    }

    /// The lease, while it is certainly valid.
    pub fn current(&self) -> Option<ReplicaLease> {
        let inner = self.inner();
        inner.current.filter(|_| inner.state() == MembershipState::Member)
    }

    /// Time since which the store does not answer; none while it does.
    pub fn store_unreachable_since(&self) -> Option<Timestamp> {
        self.inner().unreachable
    }

    /// Revokes the leases of earlier replicas on an embedded store: they are certainly gone, and nothing has to wait for
    /// their leases to expire. On a shared store nothing is revoked, because those replicas may be alive.
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
                // From a copied store: no lease will ever remove it.
                None => {
                    self.store.commit(Txn::new().op(Op::delete(key))).await?;
                }
            }
        }
        Ok(Sharing::Exclusive)
    }

    /// Keeps this replica a member: renews its lease and writes its keys, forever.
    pub async fn run(&self) {
        loop {
            let Some(current) = self.grant().await else {
                sleep(RETRY_DELAY).await;
                continue;
            };
            tokio::select! {
                () = self.renew(current) => {}
                () = self.write_keys(current.lease) => {}
            }
            tracing::warn!(replica = %self.id(), "the lease of this replica has expired: requesting a new one");
            self.update(|inner| inner.current = None);
        }
    }

    /// Revokes the lease: other replicas take over at once.
    pub async fn leave(&self) {
        let current = {
            let mut inner = self.inner();
            inner.valid_until = None;
            inner.current.take()
        };
        self.notify();
        let Some(ReplicaLease { lease, .. }) = current else { return };
        match timeout(LEAVE_TIMEOUT, self.store.revoke(lease)).await {
            Ok(Ok(()) | Err(StoreError::LeaseEnded { .. } | StoreError::Closed)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the lease cannot be revoked, and will expire"),
            Err(_) => tracing::warn!("the store does not answer: the lease will expire"),
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
                self.renewed(current, sent);
                Some(current)
            }
            Ok(Err(error)) => {
                self.renewal_failed(&error);
                None
            }
            Err(silence) => {
                self.renewal_failed(&silence);
                None
            }
        }
    }

    /// Renews the lease until it has expired.
    async fn renew(&self, current: ReplicaLease) {
        let mut next = Instant::now() + self.pace.keep_every;
        loop {
            sleep_until(next).await;
            let sent = Instant::now();
            match timeout(self.pace.keep_every, self.store.keep_alive(current.lease)).await {
                Ok(Ok(())) => {
                    self.renewed(current, sent);
                    next = sent + self.pace.keep_every;
                }
                Ok(Err(StoreError::LeaseEnded { .. })) => return,
                Ok(Err(error)) => {
                    self.renewal_failed(&error);
                    next = Instant::now() + RETRY_DELAY;
                }
                Err(silence) => {
                    self.renewal_failed(&silence);
                    next = Instant::now() + RETRY_DELAY;
                }
            }
        }
    }

    /// Writes this replica's key wherever it is missing, until the lease has expired.
    async fn write_keys(&self, lease: LeaseId) {
        let mut servers = self.view.subscribe_servers();
        loop {
            servers.mark_unchanged();
            let mut all_written = true;
            for (env, seen) in self.missing() {
                match self.put(&env, seen, lease).await {
                    Ok(CommitOutcome::Committed { .. }) => {}
                    // The view will show why.
                    Ok(CommitOutcome::Conflict { .. }) => all_written = false,
                    Err(StoreError::LeaseEnded { .. }) => return,
                    Err(error) => {
                        all_written = false;
                        tracing::debug!(%env, %error, "the key of this replica cannot be written");
                    }
                }
            }
            let limit = if all_written { Duration::MAX } else { RETRY_DELAY };
            tokio::select! {
                _ = timeout(limit, servers.changed()) => {}
                () = self.record_changed.notified() => {}
            }
        }
    }

    /// The environments without this replica's key, each with the revision of the key that is there.
    fn missing(&self) -> Vec<(EnvName, Option<Revision>)> {
        let (fleets, own) = (self.view.fleets(), self.record());
        let founded = fleets.values().filter(|fleet| fleet.is_founded());
        let shown = founded.map(|fleet| (fleet, fleet.replicas().get(self.id())));
        let missing = shown.filter(|(_, shown)| shown.is_none_or(|(record, _)| *record != own));
        missing.map(|(fleet, shown)| (fleet.env.clone(), shown.map(|(_, at)| *at))).collect()
    }

    async fn put(&self, env: &EnvName, seen: Option<Revision>, lease: LeaseId) -> Result<CommitOutcome, StoreError> {
        let key = Keys::new(env).replica(self.id());
        let (_, value) = self.encoded_record();
        let op = Op::Put { key: key.clone(), value, lease: Some(lease) };
        self.store.commit(Txn::new().guard(Guard::observed(key, seen)).op(op)).await
    }

    fn renewed(&self, current: ReplicaLease, sent: Instant) {
        let was = self.state();
        let mut inner = self.inner();
        inner.current = Some(current);
        inner.valid_until = Some(sent + self.pace.ttl);
        inner.unreachable = None;
        drop(inner);
        if was != self.state() {
            tracing::info!(replica = %self.id(), "this replica has a valid lease");
            self.notify();
        }
    }

    fn renewal_failed(&self, error: &dyn std::error::Error) {
        tracing::warn!(replica = %self.id(), %error, "the lease of this replica cannot be renewed");
        let now = self.clock.now();
        self.update(|inner| {
            inner.unreachable.get_or_insert(now);
        });
    }

    fn update(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.inner());
        self.notify();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.changed.send_modify(|steps| *steps += 1);
    }
}
