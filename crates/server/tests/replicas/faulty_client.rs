//! A store client that counts requests. A test can cut it off, delay it, or make it report false keep-alives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use muster_store::{
    CommitOutcome, KeyRange, KeyValue, Lease, LeaseId, Revision, Sharing, Store, StoreError, StoreHealth, StoreStats,
    Txn, Watch, WatchEvent, WatchFrom,
};
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct FaultyClient {
    inner: Arc<dyn Store>,
    pub(crate) reads: AtomicU64,
    pub(crate) commits: AtomicU64,
    /// Keep-alives that were answered.
    keep_alives: AtomicU64,
    /// Requests fail and the watch delivers nothing while true.
    cut: watch::Sender<bool>,
    /// The watch delivers no changes after this revision. Other requests work.
    lagging: watch::Sender<Option<Revision>>,
    /// Responses to reads of the revision are delayed while true.
    pub(crate) slow: watch::Sender<bool>,
    /// Keep-alives succeed without a request to the store: the server does not notice that it is deposed.
    pub(crate) lies: AtomicBool,
    /// The next commit of a version or a design is applied, and its response is lost.
    pub(crate) loses_next_answer: AtomicBool,
}

impl FaultyClient {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            reads: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            keep_alives: AtomicU64::new(0),
            cut: watch::Sender::new(false),
            lagging: watch::Sender::new(None),
            slow: watch::Sender::new(false),
            lies: AtomicBool::new(false),
            loses_next_answer: AtomicBool::new(false),
        })
    }

    pub(crate) fn cut(&self, on: bool) {
        self.cut.send_replace(on);
    }

    pub(crate) fn lag(&self, on: bool) {
        self.lagging.send_replace(on.then_some(Revision(0)));
    }

    /// Delivers the changes up to a revision only.
    pub(crate) fn lag_after(&self, revision: Revision) {
        self.lagging.send_replace(Some(revision));
    }

    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    pub(crate) fn keep_alives(&self) -> u64 {
        self.keep_alives.load(Ordering::SeqCst)
    }

    fn open(&self) -> Result<(), StoreError> {
        if *self.cut.borrow() {
            let cause = Arc::new(std::io::Error::other("the way is cut"));
            return Err(StoreError::Unavailable { store: self.inner.name().to_owned(), cause });
        }
        Ok(())
    }

    fn read(&self) -> Result<(), StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.open()
    }
}

impl Store for FaultyClient {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<KeyValue>, StoreError>> {
        Box::pin(async move {
            self.read()?;
            self.inner.get(key).await
        })
    }

    fn range<'a>(&'a self, prefix: &'a str, at: Option<Revision>) -> BoxFuture<'a, Result<KeyRange, StoreError>> {
        Box::pin(async move {
            self.read()?;
            self.inner.range(prefix, at).await
        })
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<CommitOutcome, StoreError>> {
        Box::pin(async move {
            self.commits.fetch_add(1, Ordering::SeqCst);
            self.open()?;
            let is_by_person = txn.ops.iter().any(|op| {
                let key = op.key();
                key.ends_with("/current_version") || key.ends_with("/design/head")
            });
            let outcome = self.inner.commit(txn).await?;
            if is_by_person && self.loses_next_answer.swap(false, Ordering::SeqCst) {
                let cause = Arc::new(std::io::Error::other("the answer is lost"));
                return Err(StoreError::Unknown { store: self.inner.name().to_owned(), cause });
            }
            Ok(outcome)
        })
    }

    fn watch(&self, prefix: &str, from: WatchFrom) -> Watch {
        let (cut, lagging) = (self.cut.subscribe(), self.lagging.subscribe());
        let events = self.inner.watch(prefix, from).then(move |event| {
            let (mut cut, mut lagging) = (cut.clone(), lagging.clone());
            async move {
                let _ = cut.wait_for(|cut| !cut).await;
                let at = match &event {
                    Ok(WatchEvent::SnapshotEnd { revision } | WatchEvent::Progress { revision }) => Some(*revision),
                    Ok(WatchEvent::Changes { revision, .. }) => Some(*revision),
                    Ok(WatchEvent::Snapshot(_) | WatchEvent::Gap { .. }) | Err(_) => None,
                };
                let _ = lagging.wait_for(|after| after.is_none_or(|after| at.is_some_and(|at| at <= after))).await;
                event
            }
        });
        Watch::new(events)
    }

    fn grant(&self, ttl: Duration) -> BoxFuture<'_, Result<Lease, StoreError>> {
        Box::pin(async move {
            self.open()?;
            self.inner.grant(ttl).await
        })
    }

    fn keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.open()?;
            if !self.lies.load(Ordering::SeqCst) {
                self.inner.keep_alive(lease).await?;
            }
            self.keep_alives.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }

    fn revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.open()?;
            self.inner.revoke(lease).await
        })
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.compact(revision)
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision, StoreError>> {
        Box::pin(async move {
            self.read()?;
            let revision = self.inner.revision().await;
            // The store has answered; the response is delayed.
            let _ = self.slow.subscribe().wait_for(|slow| !slow).await;
            revision
        })
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }

    fn sharing(&self) -> Sharing {
        Sharing::Shared
    }

    fn health(&self) -> BoxFuture<'_, StoreHealth> {
        self.inner.health()
    }
}
