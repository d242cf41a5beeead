//! The model as a [`Store`]: its clients share one history, and faults are applied to each request before and after it
//! reaches that history.

pub(crate) mod faults;
pub(crate) mod history;
mod watch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use muster_store::{
    CommitOutcome, KeyRange, KeyValue, Lease, LeaseClock, LeaseId, Revision, Sharing, Store, StoreError, StoreHealth,
    StoreStats, SystemClock, Txn, Watch, WatchFrom, limits,
};

use faults::{Faults, RequestFate};
use history::{History, cut};
use watch::WatchStream;

pub(crate) const NAME: &str = "model";

/// A store in memory with the behaviour of the contract and injected [`Faults`].
#[derive(Debug)]
pub struct Model {
    shared: Arc<SharedStore>,
    faults: Faults,
}

impl Model {
    /// Leases expire by the clock.
    pub fn new(clock: Arc<dyn LeaseClock>, faults: Faults) -> Self {
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
            RequestFate::RequestLost | RequestFate::CommittedLate => Err(faults::unknown()),
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

    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<KeyRange, StoreError>> {
        Box::pin(self.read(move |history| match at {
            None => Ok(KeyRange { kvs: cut(history.now(), prefix), revision: history.head() }),
            Some(revision) => Ok(KeyRange { kvs: cut(&history.at(revision)?, prefix), revision }),
        }))
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<CommitOutcome, StoreError>> {
        Box::pin(async move {
            limits::check_txn(&txn, limits::MAX_OPS)?;
            self.faults.delay().await;
            let answer = match self.faults.of_commit() {
                RequestFate::Answered => self.carry_out(&txn),
                RequestFate::AnswerLost => {
                    // The sender does not learn of a conflict or an expired lease either.
                    let _ = self.carry_out(&txn);
                    Err(faults::unknown())
                }
                RequestFate::CommittedLate => {
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
            let revisions = self.read(|history| Ok((history.oldest(), history.head()))).await.ok();
            StoreHealth {
                latency: revisions.map(|_| Duration::ZERO),
                oldest: revisions.map(|(oldest, _)| oldest),
                revision: revisions.map(|(_, head)| head),
                ..StoreHealth::default()
            }
        })
    }
}

#[derive(Debug)]
pub(crate) struct SharedStore {
    history: Mutex<History>,
    moved: tokio::sync::watch::Sender<()>,
    pub(crate) clock: Arc<dyn LeaseClock>,
    /// Transactions with an unknown outcome, which commit after this many requests.
    held_back: Mutex<Vec<(u64, Txn)>>,
    pub(crate) transactions: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl SharedStore {
    pub(crate) fn new(clock: Arc<dyn LeaseClock>) -> Self {
        Self {
            history: Mutex::default(),
            moved: tokio::sync::watch::Sender::new(()),
            clock,
            held_back: Mutex::default(),
            transactions: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Applies what is overdue, and then one request. The order of these calls is the order of all changes.
    pub(crate) fn with<T>(&self, request: impl FnOnce(&mut History) -> T) -> T {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let revisions = |history: &History| (history.head(), history.oldest(), history.next_deadline());
        let before = revisions(&history);
        history.expire(self.clock.now());
        for txn in self.due() {
            // The sender has stopped waiting for the answer.
            let _ = self.commit(&mut history, &txn);
        }
        let answer = request(&mut history);
        if revisions(&history) != before {
            self.moved.send_replace(());
        }
        answer
    }

    pub(crate) fn commit(&self, history: &mut History, txn: &Txn) -> Result<CommitOutcome, StoreError> {
        let before = history.head();
        let outcome = history.commit(txn)?;
        match &outcome {
            CommitOutcome::Committed { revision } if *revision == before => {}
            CommitOutcome::Committed { .. } => _ = self.transactions.fetch_add(1, Ordering::Relaxed),
            CommitOutcome::Conflict { .. } => _ = self.refused.fetch_add(1, Ordering::Relaxed),
        }
        Ok(outcome)
    }

    pub(crate) fn hold_back(&self, requests: u64, txn: Txn) {
        self.held_back.lock().unwrap_or_else(PoisonError::into_inner).push((requests, txn));
    }

    /// Commits every delayed transaction now.
    pub(crate) fn settle(&self) -> Revision {
        for (requests, _) in self.held_back.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            *requests = 0;
        }
        self.with(|history| history.head())
    }

    fn due(&self) -> Vec<Txn> {
        let mut held_back = self.held_back.lock().unwrap_or_else(PoisonError::into_inner);
        let due = held_back.extract_if(.., |(requests, _)| *requests == 0).map(|(_, txn)| txn).collect();
        for (requests, _) in held_back.iter_mut() {
            *requests -= 1;
        }
        due
    }

    /// Notifies of all changes from now on.
    pub(crate) fn moves(&self) -> tokio::sync::watch::Receiver<()> {
        self.moved.subscribe()
    }
}
