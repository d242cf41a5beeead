//! State that all clients of one model share: the history under one lock, and a notification for the watches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use muster_store::{Clock, CommitOutcome, Revision, StoreError, Txn};
use tokio::sync::watch;

use crate::model::history::History;

#[derive(Debug)]
pub(crate) struct SharedStore {
    history: Mutex<History>,
    moved: watch::Sender<()>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Transactions with an unknown outcome, which commit after this many requests.
    held_back: Mutex<Vec<(u64, Txn)>>,
    pub(crate) transactions: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl SharedStore {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            history: Mutex::default(),
            moved: watch::Sender::new(()),
            clock,
            held_back: Mutex::default(),
            transactions: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Applies what is overdue, and then one request. The order of these calls is the order of all changes.
    pub(crate) fn with<T>(&self, request: impl FnOnce(&mut History) -> T) -> T {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let stands = |history: &History| (history.head(), history.oldest(), history.next_deadline());
        let before = stands(&history);
        history.expire(self.clock.now());
        for txn in self.due() {
            // The sender has stopped waiting for the answer.
            let _ = self.commit(&mut history, &txn);
        }
        let answer = request(&mut history);
        if stands(&history) != before {
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
    pub(crate) fn moves(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }
}
