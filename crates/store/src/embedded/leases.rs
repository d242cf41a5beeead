//! Who must be kept alive until when. The file knows which leases there are; their deadlines are only here.
//!
//! So a keep-alive costs no write. After the store was opened again every lease has its full time: when it was last
//! kept alive is not known, its holder could not reach us meanwhile, and ending it early would take from a live
//! holder what it rightly holds. (etcd does the same when its leader changes.)

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::txn::LeaseId;
use tokio::sync::Notify;

use super::request::{Request, Waiting};
use super::shared::Shared;
use crate::clock::Clock;
use crate::error::StoreError;

/// How long to wait before trying again to end a lease whose end could not be written: the disk is full, say.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct LeaseBook {
    clock: Arc<dyn Clock>,
    entries: Mutex<HashMap<i64, Entry>>,
    /// Tells the keeper that the next deadline may be another one.
    changed: Notify,
}

#[derive(Debug)]
struct Entry {
    ttl: Duration,
    deadline: Duration,
    /// Its time was over: it cannot be kept alive any more, even if its keys are not yet gone.
    over: bool,
}

impl LeaseBook {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, entries: Mutex::default(), changed: Notify::new() }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<i64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a lease with its full time.
    pub(super) fn enter(&self, lease: i64, ttl: Duration) {
        let deadline = self.clock.now().saturating_add(ttl);
        self.entries().insert(lease, Entry { ttl, deadline, over: false });
        self.changed.notify_one();
    }

    /// Makes the book agree with the file: leases that it does not know get their full time, those that are gone go.
    pub(super) fn agree_with(&self, file: &[(i64, Duration)]) {
        self.entries().retain(|lease, _| file.iter().any(|(known, _)| known == lease));
        for (lease, ttl) in file {
            let known = self.entries().contains_key(lease);
            if !known {
                self.enter(*lease, *ttl);
            }
        }
    }

    pub(super) fn strike(&self, lease: i64) {
        self.entries().remove(&lease);
    }

    pub(super) fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        let now = self.clock.now();
        match self.entries().get_mut(&lease.0) {
            // The deadline decides, and not whether the keeper has seen it yet: the same answer on a slow machine.
            Some(entry) if !entry.over && entry.deadline > now => {
                // Only later than before, so the keeper need not be woken: it looks again when it wakes.
                entry.deadline = now.saturating_add(entry.ttl);
                Ok(())
            }
            _ => Err(StoreError::LeaseEnded { lease }),
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.entries().values().map(|entry| entry.deadline).min()
    }

    /// Marks the leases whose time is over, and names them.
    fn over(&self) -> Vec<i64> {
        let now = self.clock.now();
        let mut entries = self.entries();
        let over = entries.iter_mut().filter(|(_, entry)| entry.deadline <= now);
        let mut over: Vec<i64> = over
            .map(|(lease, entry)| {
                entry.over = true;
                *lease
            })
            .collect();
        over.sort_unstable();
        over
    }

    fn postpone(&self, lease: i64) {
        let deadline = self.clock.now().saturating_add(AGAIN);
        if let Some(entry) = self.entries().get_mut(&lease) {
            entry.deadline = deadline;
        }
    }

    async fn wait(&self) {
        match self.next_deadline() {
            None => self.changed.notified().await,
            Some(deadline) => {
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = self.clock.reached(deadline) => {}
                }
            }
        }
    }
}

/// Ends leases when their time is over, through the writer like everybody else. Runs until the store is closed.
pub(super) async fn keep(shared: Arc<Shared>) {
    loop {
        shared.leases.wait().await;
        for lease in shared.leases.over() {
            let Some(requests) = shared.requests.upgrade() else { return };
            let (waiting, answer) = Waiting::new();
            if requests.send(Request::Revoke { lease: LeaseId(lease), waiting }).await.is_err() {
                return;
            }
            // Only the store itself keeps the writer going, not one that waits for its answer.
            drop(requests);
            match answer.await {
                Ok(Ok(()) | Err(StoreError::LeaseEnded { .. })) => {}
                Ok(Err(error)) => {
                    tracing::warn!(store = shared.name, lease, %error, "a lease is over, but its end cannot be written");
                    shared.leases.postpone(lease);
                }
                Err(_) => return,
            }
        }
    }
}
