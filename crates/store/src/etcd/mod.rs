//! Store in an etcd cluster.
//!
//! - `pool` has the configured members and uses one of them until it fails. `request` sends requests to it, and retries
//!   at another member if that is safe. `errors` classifies etcd's errors.
//! - `read`, `commit` and `leases` implement the contract. A transaction of the contract is one transaction of etcd.
//! - `watch` is a watch: pages of a snapshot at one revision, then an etcd stream, resumed at another member when it
//!   breaks. `event_assembly` builds complete transactions from the events. `progress` finds out whether a quiet watch
//!   has missed something.
//! - `compaction` discards old revisions, `health` checks all members.
//!
//! A change is sent once. Without a response its result is [`StoreError::Unknown`], and the caller reads back. It may
//! even be applied later, when a frozen member resumes; that is why writers use guards.

mod address;
mod commit;
mod compaction;
mod credentials;
mod errors;
mod event_assembly;
mod health;
mod leases;
pub mod options;
mod pool;
mod progress;
mod read;
mod request;
mod shared;
mod watch;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_core::txn::{LeaseId, Revision, Txn};
use tokio::task::JoinSet;

pub use self::address::AddressError;
use self::credentials::Credentials;
pub use self::errors::{MemberError, OpenError};
pub use self::options::Options;
use self::pool::Pool;
use self::request::RequestError;
use self::shared::Shared;
use self::watch::WatchState;
use crate::error::StoreError;
use crate::health::{Sharing, StoreHealth};
use crate::open::StoreAccess;
use crate::store::{CommitOutcome, KeyValue, Lease, Range, Store, StoreStats};
use crate::watch::{Watch, WatchFrom};

/// A store in an etcd cluster. Dropping it ends its watches.
#[derive(Debug)]
pub struct EtcdStore {
    shared: Arc<Shared>,
    /// Compacts until the store is dropped.
    _keeper: JoinSet<()>,
}

impl EtcdStore {
    /// Opens the store at `etcd://HOST:PORT[,HOST:PORT…]`. One member has to answer. Needs a tokio runtime.
    pub async fn open(spec: &str, access: &StoreAccess, options: Options) -> Result<Self, OpenError> {
        let endpoints = address::parse(spec.strip_prefix("etcd:").unwrap_or(spec))?;
        let name = format!("etcd://{}", endpoints.join(","));
        let credentials = Credentials::read(access).await?;
        let pool = Pool::new(endpoints, credentials, options.timeouts)
            .map_err(|error| OpenError::Certificates { why: errors::describe(&error) })?;
        let shared = Arc::new(Shared::new(name.clone(), pool, options));
        match read::head(&shared).await {
            Ok(_) => {}
            Err(RequestError::Rejected { why, .. }) => return Err(OpenError::Refused { store: name, why }),
            Err(RequestError::Unavailable { mut reasons } | RequestError::Unknown { mut reasons }) => {
                for MemberError { why, .. } in &mut reasons {
                    *why = errors::explain_closed_connection(std::mem::take(why), &shared.pool.credentials);
                }
                return Err(OpenError::Unreachable { store: name, reasons });
            }
        }
        let mut keeper = JoinSet::new();
        keeper.spawn(compaction::compact_periodically(Arc::downgrade(&shared), options.compaction.every));
        Ok(Self { shared, _keeper: keeper })
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

    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<Range, StoreError>> {
        Box::pin(read::range(&self.shared, prefix, at))
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<CommitOutcome, StoreError>> {
        Box::pin(commit::commit(&self.shared, txn))
    }

    fn watch(&self, prefix: &str, from: WatchFrom) -> Watch {
        Watch::new(WatchState::new(Arc::clone(&self.shared), prefix, from).into_stream())
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, StoreError>> {
        Box::pin(leases::grant(&self.shared, ttl))
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(leases::keep_alive(&self.shared, lease))
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(leases::revoke(&self.shared, lease))
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
