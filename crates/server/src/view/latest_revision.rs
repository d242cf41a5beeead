//! The store's newest revision, read once for everybody who asks at the same time.
//!
//! Whoever asks gets an answer to a read that began after the question: one that was under way already may be older than
//! what the asker knows to be done. So two reads are enough, however many ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_core::txn::Revision;
use muster_store::{Store, StoreError};
use tokio::sync::Mutex;

#[derive(Debug)]
pub struct LatestRevision {
    store: Arc<dyn Store>,
    questions: AtomicU64,
    /// The last read: which questions came before it began, and what it said.
    last: Mutex<Option<(u64, Result<Revision, StoreError>)>>,
}

impl LatestRevision {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, questions: AtomicU64::new(0), last: Mutex::new(None) }
    }

    /// How often somebody has asked: more often than the store was read, when many do at once.
    pub fn requests(&self) -> u64 {
        self.questions.load(Ordering::SeqCst)
    }

    /// The revision of the last transaction that was answered before this was asked, or of a later one.
    pub async fn read(&self) -> Result<Revision, StoreError> {
        let mine = self.questions.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = self.last.lock().await;
        if let Some((covered, answer)) = last.as_ref()
            && *covered >= mine
        {
            return answer.clone();
        }
        let covered = self.questions.load(Ordering::SeqCst);
        let answer = self.store.revision().await;
        *last = Some((covered, answer.clone()));
        answer
    }
}
