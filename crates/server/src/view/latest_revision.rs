//! Latest revision of the store, with concurrent reads merged.
//!
//! A caller gets the result of a read that began after its call: a read in progress may be older than a write that the caller
//! knows of. Two reads are therefore enough for any number of concurrent callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_core::txn::Revision;
use muster_store::{Store, StoreError};
use tokio::sync::Mutex;

/// Reads the latest revision of the store.
#[derive(Debug)]
pub struct LatestRevision {
    store: Arc<dyn Store>,
    requests: AtomicU64,
    /// The last read: the number of requests before it began, and its result.
    last: Mutex<Option<(u64, Result<Revision, StoreError>)>>,
}

impl LatestRevision {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, requests: AtomicU64::new(0), last: Mutex::new(None) }
    }

    /// Number of requests. Higher than the number of reads when requests are concurrent.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }

    /// The revision of the last transaction that was answered before this call, or of a later one.
    pub async fn read(&self) -> Result<Revision, StoreError> {
        let mine = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = self.last.lock().await;
        if let Some((covered, answer)) = last.as_ref()
            && *covered >= mine
        {
            return answer.clone();
        }
        let covered = self.requests.load(Ordering::SeqCst);
        let answer = self.store.revision().await;
        *last = Some((covered, answer.clone()));
        answer
    }
}
