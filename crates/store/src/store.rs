//! The contract of every backend.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use muster_core::txn::{LeaseId, Revision, Txn};

use crate::error::StoreError;
use crate::health::{Sharing, StoreHealth};
use crate::watch::{Watch, WatchFrom};

/// A key and its value at some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: String,
    pub value: Bytes,
    /// The revision of the last put, compared by [`Guard::Unchanged`](muster_core::txn::Guard::Unchanged).
    pub revision: Revision,
    /// The lease that deletes the key when it expires.
    pub lease: Option<LeaseId>,
}

/// All keys under a prefix at one revision, sorted by bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub kvs: Vec<KeyValue>,
    /// The revision at which all of this was true.
    pub revision: Revision,
}

/// Result of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The transaction is durable. If it changed nothing (no operations, or deletes of keys that do not exist) it made
    /// no revision; this is then the revision at which the guards held.
    Committed { revision: Revision },
    /// Nothing was written, because the guards of these keys did not hold at this revision.
    Conflict { revision: Revision, failed: Vec<String> },
}

/// A granted lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub id: LeaseId,
    /// Time to live after the last keep-alive: at least the requested time.
    pub ttl: Duration,
}

/// Counters since the store was opened, for benchmarks and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Transactions that made a revision.
    pub transactions: u64,
    /// Transactions whose guards did not hold.
    pub conflicts: u64,
    /// Durable commits. Concurrent transactions share one.
    pub groups: u64,
    /// Calls to fsync by this process; 0 on etcd.
    pub fsyncs: u64,
    /// Size of the store's file; 0 on etcd.
    pub bytes: u64,
}

/// Revisioned keys with compare-and-swap transactions, watches and leases.
///
/// - Every transaction that changes something gets the next revision. Its changes become visible together.
/// - A reply means that the change is durable. Reads see every transaction that was acknowledged before.
/// - History is kept for some time: reads and watches can start at a past revision until it was compacted.
///
/// If a future is dropped before it completes, the result is unknown, as after a broken connection.
pub trait Store: std::fmt::Debug + Send + Sync + 'static {
    /// Display name, such as `embedded:/var/lib/muster/store`.
    fn name(&self) -> &str;

    /// Reads one key.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>>;

    /// Reads all keys with a prefix (all keys, if it is empty), at the latest or at a past revision.
    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<Range, StoreError>>;

    /// Commits a transaction, or nothing of it.
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<CommitOutcome, StoreError>>;

    /// Watches all keys with a prefix. It starts when it is first polled and ends when it is dropped.
    fn watch(&self, prefix: &str, from: WatchFrom) -> Watch;

    /// Grants a lease. It expires when it is not kept alive for its time to live.
    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, StoreError>>;

    /// Resets the time to live of a lease. Makes no revision.
    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Ends a lease now. Its keys are deleted in one transaction, as when it expires.
    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Discards the history before a revision. That revision stays readable. Idempotent.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The revision of the last acknowledged transaction.
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>>;

    /// Counters of this process.
    fn stats(&self) -> StoreStats;

    /// Other processes that may write to the store.
    fn sharing(&self) -> Sharing;

    /// Checks the store and each of its members. Never fails: errors are part of the result.
    fn health(&self) -> BoxFuture<'_, StoreHealth>;
}
