//! State that requests, watches and compaction of one store share.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_core::txn::{LeaseId, Revision};
use tokio::sync::watch;

use super::errors::Rejection;
use super::options::Options;
use super::pool::Pool;
use super::progress::Head;
use super::request::RequestError;
use crate::error::{StoreError, text_cause};

pub(super) struct Shared {
    pub(super) name: String,
    pub(super) pool: Pool,
    pub(super) options: Options,
    pub(super) head: Head,
    pub(super) counters: Counters,
    /// The latest known compaction; 0 if none is known.
    pub(super) compacted: AtomicU64,
    /// Set when the store is dropped: watches end.
    pub(super) closed: watch::Sender<bool>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) transactions: AtomicU64,
    pub(super) conflicts: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the pool, which has the password.
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

    /// Records a compaction.
    pub(super) fn note_compacted(&self, revision: u64) {
        self.compacted.fetch_max(revision, Ordering::Relaxed);
    }

    /// Converts the failure of a request. Callers handle rejections that only their request can get first.
    pub(super) fn error(&self, failure: RequestError) -> StoreError {
        let store = self.name.clone();
        match failure {
            RequestError::Unknown { reasons } => StoreError::Unknown { store, cause: RequestError::cause(&reasons) },
            RequestError::Unavailable { reasons } => {
                StoreError::Unavailable { store, cause: RequestError::cause(&reasons) }
            }
            RequestError::Rejected { rejection: Rejection::NoSpace, why } => StoreError::Full {
                store,
                cause: text_cause(format!(
                    "etcd's quota is exhausted ({why}): compact it (etcdctl compaction --physical), defragment each member (etcdctl defrag), and \
                     disarm the alarm (etcdctl alarm disarm); --quota-backend-bytes sets a larger quota"
                )),
            },
            RequestError::Rejected { rejection: Rejection::Corrupt, why } => {
                StoreError::Corrupt { store, cause: text_cause(why) }
            }
            RequestError::Rejected { rejection: Rejection::Denied, why } => {
                StoreError::Unavailable { store, cause: text_cause(format!("etcd refused the request: {why}")) }
            }
            RequestError::Rejected {
                rejection: Rejection::Compacted | Rejection::FutureRevision | Rejection::LeaseNotFound,
                why,
            } => StoreError::Unavailable { store, cause: text_cause(format!("unexpected response of etcd: {why}")) },
        }
    }

    /// The same for requests with a lease.
    pub(super) fn lease_error(&self, failure: RequestError, lease: LeaseId) -> StoreError {
        if failure.is(Rejection::LeaseNotFound) { StoreError::LeaseEnded { lease } } else { self.error(failure) }
    }
}

/// Converts a revision of etcd, which is signed and never negative.
pub(super) fn revision(of_etcd: i64) -> u64 {
    u64::try_from(of_etcd).unwrap_or(0)
}

/// Converts a revision for etcd.
pub(super) fn for_etcd(Revision(revision): Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}
