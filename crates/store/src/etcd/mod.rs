//! The store in an etcd cluster.
//!
//! - `pool` knows the members that were named, and uses one of them until it fails. `ask` sends requests there, and
//!   again elsewhere if that is safe; `verdict` reads etcd's errors to know whether it is.
//! - `read`, `commit` and `leases` are the contract in etcd's words. A transaction of ours is one of theirs.
//! - `follow` is a watch: pages of a snapshot at one revision, then a stream of etcd's, taken up again elsewhere when it
//!   breaks. `assemble` makes whole transactions of what it says, `quiet` and `probe` say when there was nothing to say.
//! - `compaction` forgets, `health` asks how everybody is.
//!
//! A change is sent once. If no answer comes, nobody knows: [`StoreError::Unknown`], and the caller reads back. It may
//! even happen later, when a member that was frozen wakes up; that is why writers guard what they write.

mod address;
mod ask;
mod assemble;
mod commit;
mod compaction;
mod connection;
mod credentials;
mod error;
mod follow;
mod head;
mod health;
mod keys;
mod leases;
mod metrics;
pub mod options;
mod pool;
mod probe;
mod quiet;
mod read;
mod shared;
mod verdict;
mod words;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_core::txn::{LeaseId, Revision, Txn};
use tokio::task::JoinSet;

pub use self::address::AddressError;
use self::ask::Failure;
use self::credentials::Credentials;
pub use self::error::{OpenError, Unreached};
use self::follow::Follower;
pub use self::options::Options;
use self::pool::Pool;
use self::shared::Shared;
use crate::access::Access;
use crate::error::StoreError;
use crate::health::{Health, Sharing};
use crate::store::{KeyValue, Lease, Outcome, Range, Stats, Store};
use crate::watch::{Watch, WatchFrom};

/// A store in an etcd cluster. Dropping it ends its watches.
#[derive(Debug)]
pub struct Etcd {
    shared: Arc<Shared>,
    /// Compacts; it ends with the store.
    _keeper: JoinSet<()>,
}

impl Etcd {
    /// Opens the store of a cluster, named as `etcd://HOST:PORT[,HOST:PORT…]`. One member has to answer. Needs a tokio
    /// runtime.
    pub async fn open(spec: &str, access: &Access, options: Options) -> Result<Self, OpenError> {
        let endpoints = address::parse(spec.strip_prefix("etcd:").unwrap_or(spec))?;
        let name = format!("etcd://{}", endpoints.join(","));
        let credentials = Credentials::read(access).await?;
        let pool = Pool::new(endpoints, credentials, options.patience)
            .map_err(|error| OpenError::Certificates { why: words::words(&error) })?;
        let shared = Arc::new(Shared::new(name.clone(), pool, options));
        match read::head(&shared).await {
            Ok(_) => {}
            Err(Failure::Answer { why, .. }) => return Err(OpenError::Refused { store: name, why }),
            Err(Failure::Away { mut reasons } | Failure::Unknown { mut reasons }) => {
                for Unreached { why, .. } in &mut reasons {
                    *why = words::hung_up(std::mem::take(why), &shared.pool.credentials);
                }
                return Err(OpenError::Unreachable { store: name, reasons });
            }
        }
        let mut keeper = JoinSet::new();
        keeper.spawn(compaction::keep_small(Arc::downgrade(&shared), options.compaction.every));
        Ok(Self { shared, _keeper: keeper })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.shared.closed.send_replace(true);
    }
}

impl Store for Etcd {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>> {
        Box::pin(read::get(&self.shared, key))
    }

    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<Range, StoreError>> {
        Box::pin(read::range(&self.shared, prefix, at))
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome, StoreError>> {
        Box::pin(commit::commit(&self.shared, txn))
    }

    fn watch(&self, prefix: &str, from: WatchFrom) -> Watch {
        Watch::new(Follower::new(Arc::clone(&self.shared), prefix, from).into_stream())
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

    fn stats(&self) -> Stats {
        let counters = &self.shared.counters;
        let transactions = counters.transactions.load(Ordering::Relaxed);
        let refused = counters.refused.load(Ordering::Relaxed);
        // How etcd groups them, and what it writes to its disks, is not seen from here.
        Stats { transactions, refused, groups: transactions, fsyncs: 0, bytes: 0 }
    }

    fn sharing(&self) -> Sharing {
        Sharing::Shared
    }

    fn health(&self) -> BoxFuture<'_, Health> {
        Box::pin(health::ask(&self.shared))
    }
}
