//! Deadlines of leases. The file has the leases; their deadlines are only in memory, so that a keep-alive writes
//! nothing.
//!
//! Every lease gets its full time to live when the store is opened. The time of its last keep-alive is unknown, and its
//! holder could not reach the store meanwhile. (etcd does the same when its leader changes.)

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::txn::LeaseId;
use tokio::sync::Notify;

use super::shared::EmbeddedShared;
use super::writer::{PendingReply, WriteRequest};
use crate::clock::LeaseClock;
use crate::store::StoreError;

/// Pause before the next attempt to end a lease, for example while the disk is full.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct LeaseDeadlines {
    clock: Arc<dyn LeaseClock>,
    entries: Mutex<HashMap<i64, LeaseDeadline>>,
    /// Wakes the expiry task: the next deadline may have changed.
    changed: Notify,
}

#[derive(Debug)]
struct LeaseDeadline {
    ttl: Duration,
    deadline: Duration,
    /// It has expired and cannot be kept alive, even if its keys still exist.
    expired: bool,
}

impl LeaseDeadlines {
    pub(super) fn new(clock: Arc<dyn LeaseClock>) -> Self {
        Self { clock, entries: Mutex::default(), changed: Notify::new() }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<i64, LeaseDeadline>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a lease with its full time to live.
    pub(super) fn insert(&self, lease: i64, ttl: Duration) {
        let deadline = self.clock.now().saturating_add(ttl);
        self.entries().insert(lease, LeaseDeadline { ttl, deadline, expired: false });
        self.changed.notify_one();
    }

    /// Synchronises with the file: unknown leases get their full time to live, missing ones are removed.
    pub(super) fn sync_with(&self, file: &[(i64, Duration)]) {
        self.entries().retain(|lease, _| file.iter().any(|(known, _)| known == lease));
        for (lease, ttl) in file {
            let known = self.entries().contains_key(lease);
            if !known {
                self.insert(*lease, *ttl);
            }
        }
    }

    pub(super) fn remove(&self, lease: i64) {
        self.entries().remove(&lease);
    }

    pub(super) fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        let now = self.clock.now();
        match self.entries().get_mut(&lease.0) {
            // The deadline decides, not the expiry task: the result is the same on a slow machine.
            Some(entry) if !entry.expired && entry.deadline > now => {
                // The deadline only moves later, so the expiry task is not woken.
                entry.deadline = now.saturating_add(entry.ttl);
                Ok(())
            }
            _ => Err(StoreError::LeaseEnded { lease }),
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        self.entries().values().map(|entry| entry.deadline).min()
    }

    /// Marks and returns the expired leases.
    fn expired(&self) -> Vec<i64> {
        let now = self.clock.now();
        let mut entries = self.entries();
        let expired = entries.iter_mut().filter(|(_, entry)| entry.deadline <= now);
        let mut expired: Vec<i64> = expired
            .map(|(lease, entry)| {
                entry.expired = true;
                *lease
            })
            .collect();
        expired.sort_unstable();
        expired
    }

    fn postpone(&self, lease: i64) {
        let deadline = self.clock.now().saturating_add(RETRY_PAUSE);
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

/// Ends expired leases through the writer, until the store is closed.
pub(super) async fn expire(shared: Arc<EmbeddedShared>) {
    loop {
        shared.leases.wait().await;
        for lease in shared.leases.expired() {
            let Some(requests) = shared.requests.upgrade() else { return };
            let (reply, answer) = PendingReply::new();
            if requests.send(WriteRequest::Revoke { lease: LeaseId(lease), reply }).await.is_err() {
                return;
            }
            // A pending reply must not keep the writer running.
            drop(requests);
            match answer.await {
                Ok(Ok(()) | Err(StoreError::LeaseEnded { .. })) => {}
                Ok(Err(error)) => {
                    tracing::warn!(store = shared.name, lease, %error, "cannot write the end of an expired lease");
                    shared.leases.postpone(lease);
                }
                Err(_) => return,
            }
        }
    }
}
