//! The contract: what every backend promises.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use muster_core::txn::{LeaseId, Revision, Txn};

use crate::error::StoreError;
use crate::health::{Health, Sharing};
use crate::watch::{Watch, WatchFrom};

/// A key with its value, as of some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    pub key: String,
    pub value: Bytes,
    /// When it was last put: what [`Guard::Unchanged`](muster_core::txn::Guard::Unchanged) compares.
    pub revision: Revision,
    /// The lease that it goes with, if any.
    pub lease: Option<LeaseId>,
}

/// All keys under a prefix at one revision, in the order of their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    pub kvs: Vec<KeyValue>,
    /// The revision at which all of this was true together.
    pub revision: Revision,
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it happened, durably. When the operations changed nothing (there were none, or they deleted keys that
    /// were not there) no revision is made, and this is the one at which the guards held.
    Committed { revision: Revision },
    /// Nothing of it happened, because these keys were not as their guards said at that revision.
    Refused { revision: Revision, failed: Vec<String> },
}

/// A lease that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub id: LeaseId,
    /// How long it lives after the last keep-alive: at least what was asked for.
    pub ttl: Duration,
}

/// Counters since the store was opened, for benchmarks and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions that made a revision.
    pub transactions: u64,
    /// Transactions whose guards did not hold.
    pub refused: u64,
    /// Durable commits that carried them: one for many, when writers are many.
    pub groups: u64,
    /// Calls to fsync, really counted, where this process makes them; 0 where another does.
    pub fsyncs: u64,
    /// Bytes of the store's file; 0 where there is none.
    pub bytes: u64,
}

/// Revisioned keys, with compare-and-swap transactions, watches and leases.
///
/// - Every transaction that changes something gets the next revision; its changes are seen together or not at all.
/// - An answer means that it is durable. Reads see every transaction that was answered before they were asked.
/// - History is kept for a while: reads and watches can start in the past until it has been compacted.
///
/// A future that is dropped before it answered leaves the outcome unknown, like a connection that broke.
pub trait Store: std::fmt::Debug + Send + Sync + 'static {
    /// The name to show people, such as `embedded:/var/lib/muster/store`.
    fn name(&self) -> &str;

    /// One key, as of now.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>>;

    /// All keys that start with a prefix (all there are, if it is empty), now or at a past revision.
    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<Range, StoreError>>;

    /// Carries out a transaction, or nothing of it.
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, StoreError>>;

    /// Follows all keys that start with a prefix. Nothing happens until it is first polled; dropping it ends it.
    fn watch(&self, prefix: &str, from: WatchFrom) -> Watch;

    /// Grants a lease; it ends when it is not kept alive for as long as its time to live.
    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, StoreError>>;

    /// Lets a lease live for its whole time again. Makes no revision.
    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Ends a lease now. Its keys go in one transaction, as when it ends by itself.
    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Forgets what was before a revision; that revision itself can still be read. Doing it again changes nothing.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>>;

    /// The revision of the last transaction that was answered.
    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>>;

    /// What this process has done to the store so far.
    fn stats(&self) -> Stats;

    /// Who else may write to it.
    fn sharing(&self) -> Sharing;

    /// Asks the store how it is, and each of its members. Never fails: what does not answer is part of the answer.
    fn health(&self) -> BoxFuture<'_, Health>;
}
