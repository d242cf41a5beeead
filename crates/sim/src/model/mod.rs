//! The model as a [`Store`]: faults are applied to each request before and after it reaches the history.

pub(crate) mod faults;
pub(crate) mod history;
pub(crate) mod shared;
mod watch;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::BoxFuture;
use muster_store::{
    Clock, CommitOutcome, KeyValue, Lease, LeaseId, Range, Revision, Sharing, Store, StoreError, StoreHealth,
    StoreStats, SystemClock, Txn, Watch, WatchFrom, limits,
};

use self::faults::{Faults, RequestFate};
use self::history::{History, cut};
use self::watch::WatchStream;
use crate::model::shared::SharedStore;

pub(crate) const NAME: &str = "model";

/// A store in memory with the behaviour of the contract and injected [`Faults`].
#[derive(Debug)]
pub struct Model {
    shared: Arc<SharedStore>,
    faults: Faults,
}

impl Model {
    /// Leases expire by the clock.
    pub fn new(clock: Arc<dyn Clock>, faults: Faults) -> Self {
        Self { shared: Arc::new(SharedStore::new(clock)), faults }
    }

    /// Another client of the same store with faults of its own: a second replica, or an observer.
    pub fn client(&self, faults: Faults) -> Self {
        Self { shared: Arc::clone(&self.shared), faults }
    }

    /// Commits every delayed transaction, after which nothing changes any more.
    pub fn settle(&self) -> Revision {
        self.shared.settle()
    }

    async fn read<T>(&self, read: impl FnOnce(&mut History) -> Result<T, StoreError> + Send) -> Result<T, StoreError> {
        self.faults.delay().await;
        if self.faults.of_read() == RequestFate::NotReached {
            return Err(faults::unavailable());
        }
        let answer = self.shared.with(read);
        self.faults.delay().await;
        answer
    }

    /// A write that is lost where a commit would be delayed.
    async fn write<T>(
        &self,
        write: impl FnOnce(&mut History) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        self.faults.delay().await;
        let fate = self.faults.of_other_write();
        let answer = match fate {
            RequestFate::Answered => self.shared.with(write),
            RequestFate::AnswerLost => self.shared.with(write).and(Err(faults::unknown())),
            RequestFate::NotReached => Err(faults::unavailable()),
            RequestFate::Full => Err(faults::full()),
            RequestFate::RequestLost | RequestFate::DoneLater => Err(faults::unknown()),
        };
        self.faults.delay().await;
        answer
    }

    fn carry_out(&self, txn: &Txn) -> Result<CommitOutcome, StoreError> {
        self.shared.with(|history| {
            let outcome = self.shared.commit(history, txn)?;
            if let Some(left) = self.faults.compaction() {
                history.compact(Revision(history.head().0.saturating_sub(left)))?;
            }
            Ok(outcome)
        })
    }
}

impl Default for Model {
    /// Without faults, with the clock of tokio, which can be paused.
    fn default() -> Self {
        Self::new(Arc::new(SystemClock::new()), Faults::none())
    }
}

impl Store for Model {
    fn name(&self) -> &str {
        NAME
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>> {
        Box::pin(async move {
            limits::check_key(key)?;
            self.read(|history| Ok(history.now().get(key).cloned())).await
        })
    }

    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<Range, StoreError>> {
        Box::pin(self.read(move |history| match at {
            None => Ok(Range { kvs: cut(history.now(), prefix), revision: history.head() }),
            Some(revision) => Ok(Range { kvs: cut(&history.at(revision)?, prefix), revision }),
        }))
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<CommitOutcome, StoreError>> {
        Box::pin(async move {
            limits::check_txn(&txn)?;
            self.faults.delay().await;
            let answer = match self.faults.of_commit() {
                RequestFate::Answered => self.carry_out(&txn),
                RequestFate::AnswerLost => {
                    // The sender does not learn of a conflict or an expired lease either.
                    let _ = self.carry_out(&txn);
                    Err(faults::unknown())
                }
                RequestFate::DoneLater => {
                    self.shared.hold_back(self.faults.held_for(), txn);
                    Err(faults::unknown())
                }
                RequestFate::RequestLost => Err(faults::unknown()),
                RequestFate::NotReached => Err(faults::unavailable()),
                RequestFate::Full => Err(faults::full()),
            };
            self.faults.delay().await;
            answer
        })
    }

    fn watch(&self, prefix: &str, from: WatchFrom) -> Watch {
        Watch::new(WatchStream::new(Arc::clone(&self.shared), self.faults.clone(), prefix, from).into_stream())
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, StoreError>> {
        Box::pin(async move {
            limits::check_ttl(ttl)?;
            self.write(|history| Ok(history.grant(ttl, self.shared.clock.now()))).await
        })
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        // Repeating it does no harm, and it fails as a read does.
        Box::pin(self.read(move |history| history.keep_alive(lease, self.shared.clock.now())))
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.write(move |history| history.revoke(lease)))
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.write(move |history| history.compact(revision)))
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        Box::pin(self.read(|history| Ok(history.head())))
    }

    fn stats(&self) -> StoreStats {
        let transactions = self.shared.transactions.load(Ordering::Relaxed);
        let conflicts = self.shared.refused.load(Ordering::Relaxed);
        StoreStats { transactions, conflicts, groups: transactions, ..StoreStats::default() }
    }

    fn sharing(&self) -> Sharing {
        Sharing::Shared
    }

    fn health(&self) -> BoxFuture<'_, StoreHealth> {
        Box::pin(async move {
            let stands = self.read(|history| Ok((history.oldest(), history.head()))).await.ok();
            StoreHealth {
                latency: stands.map(|_| Duration::ZERO),
                oldest: stands.map(|(oldest, _)| oldest),
                revision: stands.map(|(_, head)| head),
                ..StoreHealth::default()
            }
        })
    }
}
