//! The contract of every backend: operations, errors and health.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use muster_core::txn::{LeaseId, Revision, Txn};

use crate::limits::{InvalidRequest, MAX_OPS};
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
pub struct KeyRange {
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

/// Keys that are read at the same time by a backend that reads each by itself.
const CONCURRENT_READS: usize = 32;

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

    /// Reads some keys, in their order. They are read together where the backend can, and need not be of one revision.
    fn get_all<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<Vec<Option<KeyValue>>, StoreError>> {
        Box::pin(stream::iter(keys).map(|key| self.get(key)).buffered(CONCURRENT_READS).try_collect())
    }

    /// Reads all keys with a prefix (all keys, if it is empty), at the latest or at a past revision.
    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<KeyRange, StoreError>>;

    /// Commits a transaction, or nothing of it.
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<CommitOutcome, StoreError>>;

    /// Operations, and guards, that a transaction may have.
    fn max_ops(&self) -> usize {
        MAX_OPS
    }

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

    /// Verifies the checksums of the whole store, unless a recent result is known. Other requests wait meanwhile. etcd
    /// verifies itself.
    fn verify(&self) -> BoxFuture<'_, Result<Verification, StoreError>> {
        Box::pin(async { Ok(Verification { integrity: Integrity::Unchecked, age: Duration::ZERO }) })
    }
}

/// Result of a verification, and the time since then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verification {
    pub integrity: Integrity,
    pub age: Duration,
}

/// Condition of a store's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// The store verifies itself.
    Unchecked,
    Intact,
    /// It was damaged, and could be repaired.
    Repaired,
}

/// The source of an error. Shared, because one failed fsync is the error of all requests of a group.
pub type ErrorCause = Arc<dyn Error + Send + Sync>;

/// An operation of the store failed.
///
/// The variants differ in what the caller should do next. After [`Unavailable`](StoreError::Unavailable) and
/// [`Full`](StoreError::Full) *nothing* was written, and the request may be sent again. After
/// [`Unknown`](StoreError::Unknown) the change may have been made, and the caller has to read back. In a cluster it may
/// even be made later; guards on everything that the change was computed from make that harmless.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The request breaks a limit of the contract, on every backend. A retry fails the same way.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),

    #[error("revision {requested} has been compacted, the oldest readable revision is {oldest}: read the latest state")]
    Compacted { requested: Revision, oldest: Revision },

    /// The store was restored from a backup or replaced: the reader has seen a later state.
    #[error("revision {requested} is in the future, the store is at {head}: it may have been restored from a backup")]
    Ahead { requested: Revision, head: Revision },

    #[error("lease {} has expired: grant a new one and put its keys again", .lease.0)]
    LeaseEnded { lease: LeaseId },

    #[error("{store}: no space left, nothing was written: free some space and retry")]
    Full {
        store: String,
        #[source]
        cause: ErrorCause,
    },

    #[error("{store}: unavailable, nothing was written")]
    Unavailable {
        store: String,
        #[source]
        cause: ErrorCause,
    },

    #[error("{store}: the result of the change is unknown: read back the changed keys")]
    Unknown {
        store: String,
        #[source]
        cause: ErrorCause,
    },

    #[error("{store}: the content is corrupt: stop the server, keep a copy of the store's files, and restore a backup")]
    Corrupt {
        store: String,
        #[source]
        cause: ErrorCause,
    },

    #[error("the store is closed")]
    Closed,
}

/// A cause that has no error type of its own.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TextCause(pub(crate) String);

/// Makes a [`ErrorCause`] from a text.
pub(crate) fn text_cause(what: impl Into<String>) -> ErrorCause {
    Arc::new(TextCause(what.into()))
}

/// Other processes that may write to the same store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// None. The holder of a lease that was granted to an earlier process is gone.
    Exclusive,
    /// Any number of processes on any number of machines.
    Shared,
}

/// StoreHealth of a store at the time of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// Servers of the store, sorted by name. A store in a file has one.
    pub members: Vec<StoreMember>,
    /// Time of one linearizable read; none if it failed.
    pub latency: Option<Duration>,
    /// Alarms that block writes, such as etcd's exhausted quota.
    pub alarms: Vec<Alarm>,
    /// Conditions under which its changes will be lost, though it answers.
    pub faults: Vec<StoreFault>,
    /// The oldest readable revision, if it is known.
    pub oldest: Option<Revision>,
    /// The latest revision.
    pub revision: Option<Revision>,
    /// Duration of a verification in progress. Other requests wait for its end, and nothing else is known.
    pub verifying: Option<Duration>,
}

/// One server of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreMember {
    /// The member's name, or its address if it has no name.
    pub name: String,
    pub endpoints: Vec<String>,
    /// The error, if the member did not answer.
    pub state: Result<MemberState, String>,
}

/// State of a member that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    pub latency: Duration,
    pub version: String,
    pub is_leader: bool,
    /// A new member of the cluster that does not vote yet.
    pub learner: bool,
    /// Size of its file, and how much of it is in use. Defragmentation frees the rest.
    pub bytes: u64,
    pub bytes_in_use: u64,
    /// Size at which it refuses writes, if it reports one.
    pub quota: Option<u64>,
    /// Raft entries that it has not applied yet.
    pub behind: u64,
    /// Errors that the member reports.
    pub errors: Vec<String>,
}

/// A fault of the file of an embedded store. The process still has the former file open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    FileDeleted,
    /// Another file has its name.
    FileReplaced,
}

/// A condition that an operator has to resolve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The member that raised it, by its name in [`StoreHealth::members`].
    pub member: String,
    pub kind: AlarmKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmKind {
    /// The quota is exhausted. No writes are accepted until space was freed and the alarm was disarmed.
    NoSpace,
    /// A member found corrupt data.
    Corrupt,
}
