//! The audit: who changed what, appended in the transaction of the change.
//!
//! A [`Writer`](crate::app::Writer) and the controllers commit through an [`AuditedStore`], which adds a record to each
//! transaction. A change without a record is therefore not possible for them. What agents report, and what servers write about
//! themselves (leases, presence, controller locks), goes to the store directly.
//!
//! A transaction with many changes has several records. Each record has the number after the last one and its hash, so two writers never append at the same time: within a process
//! they wait for each other, and between processes the second transaction is refused and sent again. [`segments`] moves old
//! records into blobs.

pub(crate) mod segments;

use std::ops::Deref;
use std::sync::Arc;
use std::{fmt, io};

use bytes::Bytes;
use muster_core::audit::{Actor, AuditRecord, ChangedKey, DividedChanges, claimed_hash, divide};
use muster_core::keys::{self, ROOT, ServerKey};
use muster_core::names::{EnvName, ReplicaId};
use muster_core::replica::ControllerName;
use muster_core::txn::{Guard, Op, Revision, Txn, ValuesBefore};
use muster_store::{CommitOutcome, Store, StoreError};
use tokio::sync::{Mutex, Notify};

use crate::api::IdempotencyClaim;
use crate::app::Clock;
use crate::view::View;

/// Attempts to append behind the last record, if other processes append too.
const ATTEMPTS: usize = 100;

/// Client or controller that makes changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) actor: Actor,
    /// Address of a client, or the replica of a controller.
    pub(crate) from: String,
    pub(crate) action: String,
    pub(crate) request: Option<String>,
}

impl Origin {
    pub(crate) fn controller(name: ControllerName, replica: &ReplicaId) -> Self {
        let actor = Actor::Controller { name, replica: replica.clone() };
        Self { actor, from: format!("replica {replica}"), action: name.to_string(), request: None }
    }
}

/// The last record, behind which the next one is appended.
#[derive(Debug)]
struct Tail {
    seq: u64,
    hash: String,
    /// Revision of its key; none if the key does not exist.
    at: Option<Revision>,
}

impl Tail {
    /// Conditions under which it still is the last record.
    ///
    /// The next number must be free. This alone is not enough: the records after it may be in a segment, and deleted. Since
    /// the newest records stay in the store, the key of the last one is unchanged in that case only if none followed.
    fn guards(&self) -> Vec<Guard> {
        let key = |seq| ServerKey::AuditRecord { seq }.text();
        let mut guards = vec![Guard::Absent { key: key(self.seq + 1) }, Guard::observed(key(self.seq), self.at)];
        if self.seq == 0 {
            guards.push(Guard::Absent { key: ServerKey::AuditSegment { first: 1 }.text() });
        }
        guards
    }
}

/// Appends records to the audit.
#[derive(Debug)]
pub(crate) struct AuditLog {
    store: Arc<dyn Store>,
    view: Arc<View>,
    clock: Clock,
    /// None if it has to be read again: at the start, after a conflict, and after an append with an unknown outcome.
    tail: Mutex<Option<Tail>>,
    /// Wakes the task that moves records into segments.
    appended: Notify,
}

impl AuditLog {
    pub(crate) fn new(store: Arc<dyn Store>, view: Arc<View>, clock: Clock) -> Self {
        Self { store, view, clock, tail: Mutex::default(), appended: Notify::new() }
    }

    /// Records something that is not a transaction. It is durable when this returns.
    pub(crate) async fn record(&self, origin: &Origin, env: Option<&EnvName>, why: String) -> Result<(), StoreError> {
        let changes = DividedChanges { parts: vec![Vec::new()], why: Some(why) };
        self.append(origin, env.cloned(), Txn::new(), changes).await.map(drop)
    }

    /// Commits a transaction together with its record. A transaction that changes nothing gets none. Values before it that are not
    /// known are read.
    async fn commit(
        &self,
        origin: &Origin,
        txn: Txn,
        before: Option<ValuesBefore>,
        claim: Option<&IdempotencyClaim>,
    ) -> Result<CommitOutcome, StoreError> {
        let before = match before {
            Some(known) => known.into_iter().map(|value| value.map(Bytes::from)).collect(),
            None => self.read_before(&txn).await?,
        };
        let changed = changed_keys(&txn, &before);
        if changed.is_empty() {
            return self.store.commit(txn).await;
        }
        let changes = divide(&changed).map_err(|error| self.unavailable(error))?;
        // The record of the idempotency key is no change of its own.
        let txn = match claim {
            Some(claim) => claim.add_to(txn),
            None => txn,
        };
        let env = txn.ops.first().and_then(|op| keys::parse(op.key())).map(|(env, _)| env);
        self.append(origin, env, txn, changes).await
    }

    async fn append(
        &self,
        origin: &Origin,
        env: Option<EnvName>,
        txn: Txn,
        DividedChanges { parts, why }: DividedChanges,
    ) -> Result<CommitOutcome, StoreError> {
        let mut last = self.tail.lock().await;
        for _ in 0..ATTEMPTS {
            // Taken: if this future is dropped while it commits, the next append reads it again.
            let tail = match last.take() {
                Some(tail) => tail,
                None => self.read_tail().await?,
            };
            let guards = tail.guards();
            let mut whole = txn.clone();
            whole.guards.extend(guards.iter().cloned());
            let (mut seq, mut hash) = (tail.seq, tail.hash.clone());
            for changes in &parts {
                seq += 1;
                let record = AuditRecord {
                    seq,
                    at: self.clock.now(),
                    env: env.clone(),
                    actor: origin.actor.clone(),
                    from: origin.from.clone(),
                    action: origin.action.clone(),
                    changes: changes.clone(),
                    why: why.clone(),
                    request: origin.request.clone(),
                    previous: hash,
                };
                let sealed = record.seal().map_err(|error| self.unavailable(error))?;
                whole = whole.op(Op::put(ServerKey::AuditRecord { seq }.text(), sealed.line));
                hash = sealed.hash;
            }
            match self.store.commit(whole).await? {
                CommitOutcome::Committed { revision } => {
                    *last = Some(Tail { seq, hash, at: Some(revision) });
                    self.appended.notify_one();
                    return Ok(CommitOutcome::Committed { revision });
                }
                CommitOutcome::Conflict { revision, failed } => {
                    let is_own = |key: &String| guards.iter().any(|guard| guard.key() == key);
                    let (own, others): (Vec<_>, Vec<_>) = failed.into_iter().partition(is_own);
                    if own.is_empty() {
                        *last = Some(tail);
                    }
                    if !others.is_empty() {
                        return Ok(CommitOutcome::Conflict { revision, failed: others });
                    }
                    // Another process has appended.
                }
            }
        }
        Err(self.unavailable(io::Error::other("other servers appended to the audit at the same time, too often")))
    }

    /// Error: nothing was written, because the record could not be appended.
    fn unavailable(&self, cause: impl std::error::Error + Send + Sync + 'static) -> StoreError {
        StoreError::Unavailable { store: self.store.name().to_owned(), cause: Arc::new(cause) }
    }

    /// Finds the last record. The view may be behind: the store is read from the view's last record on.
    async fn read_tail(&self) -> Result<Tail, StoreError> {
        let (seen, hash) = self.view.server_records().audit_tail();
        let known = match self.read_record(seen).await? {
            Some(tail) => tail,
            None if seen == 0 => Tail { seq: 0, hash, at: None },
            // The view is so far behind that its last record was moved into a segment.
            None => {
                let revision = self.store.revision().await?;
                self.view.reach(revision).await.map_err(|error| self.unavailable(error))?;
                let (seq, hash) = self.view.server_records().audit_tail();
                self.read_record(seq).await?.unwrap_or(Tail { seq, hash, at: None })
            }
        };
        let mut tail = known;
        while let Some(next) = self.read_record(tail.seq + 1).await? {
            tail = next;
        }
        Ok(tail)
    }

    async fn read_record(&self, seq: u64) -> Result<Option<Tail>, StoreError> {
        let found = self.store.get(&ServerKey::AuditRecord { seq }.text()).await?;
        Ok(found.map(|found| {
            let hash = claimed_hash(&String::from_utf8_lossy(&found.value)).to_owned();
            Tail { seq, hash, at: Some(found.revision) }
        }))
    }

    /// Values of the keys of a transaction before it, in the order of its operations.
    async fn read_before(&self, txn: &Txn) -> Result<Vec<Option<Bytes>>, StoreError> {
        let keys: Vec<String> = txn.ops.iter().map(|op| op.key().to_owned()).collect();
        Ok(self.store.get_all(&keys).await?.into_iter().map(|found| found.map(|found| found.value)).collect())
    }
}

/// Keys that a transaction changes.
fn changed_keys<'a>(txn: &'a Txn, before: &'a [Option<Bytes>]) -> Vec<ChangedKey<'a>> {
    let changed = txn.ops.iter().zip(before).map(|(op, before)| ChangedKey {
        key: op.key().strip_prefix(ROOT).unwrap_or(op.key()),
        before: before.as_deref(),
        after: match op {
            Op::Put { value, .. } => Some(value.as_slice()),
            Op::Delete { .. } => None,
        },
    });
    changed.filter(|changed| changed.before != changed.after).collect()
}

/// The store, for changes with a known origin. Without an origin, changes are not recorded: they are not by a person and decide
/// nothing.
#[derive(Clone)]
pub struct AuditedStore {
    store: Arc<dyn Store>,
    log: Arc<AuditLog>,
    origin: Option<Arc<Origin>>,
    /// Of a request with an idempotency key.
    claim: Option<Arc<IdempotencyClaim>>,
}

impl AuditedStore {
    pub(crate) fn new(store: Arc<dyn Store>, log: Arc<AuditLog>) -> Self {
        Self { store, log, origin: None, claim: None }
    }

    pub(crate) fn with_origin(&self, origin: Arc<Origin>) -> Self {
        Self { origin: Some(origin), ..self.clone() }
    }

    /// The first transaction commits the record of an idempotency key too.
    pub(crate) fn with_claim(self, claim: Option<Arc<IdempotencyClaim>>) -> Self {
        Self { claim, ..self }
    }

    /// The same for a client that has proved to be another one.
    pub(crate) fn with_actor(&self, actor: Actor) -> Self {
        let origin = self.origin.as_deref().map(|origin| Arc::new(Origin { actor, ..origin.clone() }));
        Self { origin, ..self.clone() }
    }

    /// Commits a transaction, with a record of it.
    pub async fn commit(&self, txn: Txn) -> Result<CommitOutcome, StoreError> {
        self.commit_knowing(txn, None).await
    }

    /// The same for a caller that may know the values before the transaction: those that hold if its guards do.
    pub(crate) async fn commit_knowing(
        &self,
        txn: Txn,
        before: Option<ValuesBefore>,
    ) -> Result<CommitOutcome, StoreError> {
        match &self.origin {
            Some(origin) => {
                let claim = self.claim.as_deref();
                let outcome = self.log.commit(origin, txn, before, claim).await;
                if let (Ok(CommitOutcome::Committed { .. }), Some(claim)) = (&outcome, claim) {
                    claim.mark_committed();
                }
                outcome
            }
            None => self.store.commit(txn).await,
        }
    }

    /// Records something that is not a transaction, before it is acknowledged.
    pub(crate) async fn record(&self, env: Option<&EnvName>, why: String) -> Result<(), StoreError> {
        match &self.origin {
            Some(origin) => self.log.record(origin, env, why).await,
            None => Ok(()),
        }
    }

    /// The store itself. Its changes are not recorded.
    pub(crate) fn unaudited(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

impl fmt::Debug for AuditedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditedStore").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Reads need no record.
impl Deref for AuditedStore {
    type Target = dyn Store;

    fn deref(&self) -> &(dyn Store + 'static) {
        self.store.as_ref()
    }
}
