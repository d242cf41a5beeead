//! Store in an etcd cluster.
//!
//! - `pool` has the configured members and uses one of them until it fails. `access` reads their addresses and the
//!   credentials. `request` sends requests to a member, and retries
//!   at another member if that is safe. `errors` classifies etcd's errors.
//! - `read` and `commit` implement the contract. A transaction of the contract is one transaction of etcd.
//! - `watch` is a watch: pages of a snapshot at one revision, then an etcd stream, resumed at another member when it
//!   breaks. `event_assembly` builds complete transactions from the events. `progress` finds out whether a quiet watch
//!   has missed something.
//! - `compaction` discards old revisions, `health` checks all members.
//!
//! A change is sent once. Without a response its result is [`StoreError::Unknown`], and the caller reads back. It may
//! even be applied later, when a frozen member resumes; that is why writers use guards.

mod access;
mod commit;
mod compaction;
mod errors;
mod event_assembly;
mod health;
mod pool;
mod progress;
mod read;
mod request;
mod watch;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_core::txn::{LeaseId, Revision, Txn};
use tokio::task::JoinSet;

use crate::open::StoreAccess;
use crate::store::{CommitOutcome, KeyRange, KeyValue, Lease, Sharing, Store, StoreError, StoreHealth, StoreStats};
use crate::watch::{Watch, WatchFrom};

use access::Credentials;
use pool::MemberPool;
use request::{EtcdShared, RequestError};
use watch::EtcdWatch;

pub use access::EtcdAddressError;
pub use errors::{MemberError, OpenEtcdError};

/// Options of a store in etcd.
#[derive(Clone, Copy, Debug)]
pub struct EtcdOptions {
    pub timeouts: Timeouts,
    pub compaction: Compaction,
}

/// Timeouts of requests and connections.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Opening a connection. A member on the same continent answers within a tenth of this.
    pub connect: Duration,
    /// One attempt of a request that can be retried. Longer than a leader election (one to two seconds by default):
    /// during that time waiting is better than switching members.
    pub attempt: Duration,
    /// One attempt of a keep-alive. Shorter, because the lease expires meanwhile: its holder waits a few seconds at
    /// most, which is enough for two members.
    pub keep_alive: Duration,
    /// The response to a change, which is sent once. After that its result is unknown.
    pub change: Duration,
    /// All attempts of a request, until the store counts as unavailable.
    pub total: Duration,
    /// Silence on a connection in use before it is pinged. At least five seconds: etcd closes connections that ping
    /// more often (`--grpc-keepalive-min-time`).
    pub ping_after: Duration,
    /// The response to a ping. It detects a frozen member, which keeps its connections open.
    pub ping_timeout: Duration,
    /// The event of a change by this process. After that its watch counts as stuck.
    pub overdue_event: Duration,
    /// Each member in a health check.
    pub health: Duration,
}

/// Retention of history. etcd itself keeps everything until it is compacted, and refuses writes when its quota is full.
#[derive(Clone, Copy, Debug)]
pub struct Compaction {
    /// Interval between two compactions.
    pub every: Duration,
    /// Minimum age of compacted revisions: a replica that was partitioned for some minutes can resume its watch.
    pub keep: Duration,
    /// Minimum number of revisions that are kept, whatever their age. They cost little, and an idle fleet makes few.
    pub keep_at_least: u64,
    /// Maximum number of revisions that are kept, whatever their age. With 1 KiB each this is a tenth of etcd's quota.
    pub keep_at_most: u64,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        let (seconds, minutes) = (Duration::from_secs, |minutes: u64| Duration::from_secs(60 * minutes));
        Self {
            timeouts: Timeouts {
                connect: seconds(2),
                attempt: seconds(3),
                keep_alive: Duration::from_millis(1200),
                change: seconds(5),
                total: seconds(12),
                ping_after: seconds(6),
                ping_timeout: seconds(3),
                overdue_event: seconds(4),
                health: seconds(2),
            },
            compaction: Compaction {
                every: minutes(1),
                keep: minutes(10),
                keep_at_least: 10_000,
                keep_at_most: 200_000,
            },
        }
    }
}

/// A store in an etcd cluster. Dropping it ends its watches.
#[derive(Debug)]
pub struct EtcdStore {
    shared: Arc<EtcdShared>,
    /// Compacts until the store is dropped.
    _compaction_task: JoinSet<()>,
}

impl EtcdStore {
    /// Opens the store at `etcd://HOST:PORT[,HOST:PORT…]`. One member has to answer. Needs a tokio runtime.
    pub async fn open(spec: &str, access: &StoreAccess, options: EtcdOptions) -> Result<Self, OpenEtcdError> {
        let endpoints = access::parse_address(spec.strip_prefix("etcd:").unwrap_or(spec))?;
        let name = format!("etcd://{}", endpoints.join(","));
        let credentials = Credentials::read(access).await?;
        let pool = MemberPool::new(endpoints, credentials, options.timeouts)
            .map_err(|error| OpenEtcdError::Certificates { why: errors::describe(&error) })?;
        let shared = Arc::new(EtcdShared::new(name.clone(), pool, options));
        match read::head(&shared).await {
            Ok(_) => {}
            Err(RequestError::Rejected { why, .. }) => return Err(OpenEtcdError::Refused { store: name, why }),
            Err(RequestError::Unavailable { mut reasons } | RequestError::Unknown { mut reasons }) => {
                for MemberError { why, .. } in &mut reasons {
                    *why = errors::explain_closed_connection(std::mem::take(why), &shared.pool.credentials);
                }
                return Err(OpenEtcdError::Unreachable { store: name, reasons });
            }
        }
        commit::probe_max_ops(&shared).await;
        let mut compaction_task = JoinSet::new();
        compaction_task.spawn(compaction::compact_periodically(Arc::downgrade(&shared), options.compaction.every));
        Ok(Self { shared, _compaction_task: compaction_task })
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.shared.closed.send_replace(true);
    }
}

impl Store for EtcdStore {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>> {
        Box::pin(read::get(&self.shared, key))
    }

    fn get_all<'a>(&'a self, keys: &'a [String]) -> BoxFuture<'a, Result<Vec<Option<KeyValue>>, StoreError>> {
        Box::pin(read::get_all(&self.shared, keys))
    }

    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<KeyRange, StoreError>> {
        Box::pin(read::range(&self.shared, prefix, at))
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<CommitOutcome, StoreError>> {
        Box::pin(commit::commit(&self.shared, txn))
    }

    fn max_ops(&self) -> usize {
        self.shared.max_ops.load(Ordering::Relaxed)
    }

    fn watch(&self, prefix: &str, from: WatchFrom) -> Watch {
        Watch::new(EtcdWatch::new(Arc::clone(&self.shared), prefix, from).into_stream())
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, StoreError>> {
        Box::pin(commit::grant(&self.shared, ttl))
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(commit::keep_alive(&self.shared, lease))
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(commit::revoke(&self.shared, lease))
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(compaction::compact(&self.shared, revision))
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        Box::pin(
            async move { read::head(&self.shared).await.map(Revision).map_err(|failure| self.shared.error(failure)) },
        )
    }

    fn stats(&self) -> StoreStats {
        let counters = &self.shared.counters;
        let transactions = counters.transactions.load(Ordering::Relaxed);
        let conflicts = counters.conflicts.load(Ordering::Relaxed);
        // etcd's own grouping and fsyncs are not visible here.
        StoreStats { transactions, conflicts, groups: transactions, fsyncs: 0, bytes: 0 }
    }

    fn sharing(&self) -> Sharing {
        Sharing::Shared
    }

    fn health(&self) -> BoxFuture<'_, StoreHealth> {
        Box::pin(health::check(&self.shared))
    }
}
