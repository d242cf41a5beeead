//! What requests, watches and the compaction of one store have in common.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_core::txn::{LeaseId, Revision};
use tokio::sync::watch;

use super::ask::Failure;
use super::head::Head;
use super::options::Options;
use super::pool::Pool;
use super::verdict::Answer;
use crate::error::{StoreError, said};

pub(super) struct Shared {
    pub(super) name: String,
    pub(super) pool: Pool,
    pub(super) options: Options,
    pub(super) head: Head,
    pub(super) counters: Counters,
    /// The newest compaction that was heard of; 0 if none was.
    pub(super) compacted: AtomicU64,
    /// True when the store is gone, and watches shall end.
    pub(super) closed: watch::Sender<bool>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) transactions: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the pool: it knows the password.
        f.debug_struct("Shared").field("name", &self.name).field("head", &self.head).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(name: String, pool: Pool, options: Options) -> Self {
        Self {
            name,
            pool,
            options,
            head: Head::new(),
            counters: Counters::default(),
            compacted: AtomicU64::new(0),
            closed: watch::Sender::new(false),
        }
    }

    /// A compaction was heard of.
    pub(super) fn note_compacted(&self, revision: u64) {
        self.compacted.fetch_max(revision, Ordering::Relaxed);
    }

    /// What a caller is told. Answers that only some requests get are looked at by those first.
    pub(super) fn error(&self, failure: Failure) -> StoreError {
        let store = self.name.clone();
        match failure {
            Failure::Unknown { reasons } => StoreError::Unknown { store, cause: Failure::cause(&reasons) },
            Failure::Away { reasons } => StoreError::Unavailable { store, cause: Failure::cause(&reasons) },
            Failure::Answer { answer: Answer::NoSpace, why } => StoreError::Full {
                store,
                cause: said(format!(
                    "etcd's quota is exhausted ({why}): compact it (etcdctl compaction --physical), defragment each member (etcdctl defrag), and then \
                     disarm the alarm (etcdctl alarm disarm); a bigger quota is set with --quota-backend-bytes"
                )),
            },
            Failure::Answer { answer: Answer::Corrupt, why } => StoreError::Corrupt { store, cause: said(why) },
            Failure::Answer { answer: Answer::Denied, why } => {
                StoreError::Unavailable { store, cause: said(format!("etcd refuses: {why}")) }
            }
            Failure::Answer { answer: Answer::Compacted | Answer::Future | Answer::NoLease, why } => {
                StoreError::Unavailable { store, cause: said(format!("etcd gives an answer that does not fit: {why}")) }
            }
        }
    }

    /// The same for requests that name a lease.
    pub(super) fn lease_error(&self, failure: Failure, lease: LeaseId) -> StoreError {
        if failure.is(Answer::NoLease) { StoreError::LeaseEnded { lease } } else { self.error(failure) }
    }
}

/// etcd counts in signed numbers, and none of those that it gives out is negative.
pub(super) fn revision(of_etcd: i64) -> u64 {
    u64::try_from(of_etcd).unwrap_or(0)
}

/// The other way. No store lives to see the difference.
pub(super) fn for_etcd(Revision(revision): Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}
