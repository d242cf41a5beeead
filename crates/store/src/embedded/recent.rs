//! Recent transactions in memory: watches that keep up never read the file.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use crate::watch::WatchChange;

/// A transaction that is durable.
#[derive(Debug)]
pub(super) struct CommittedTxn {
    pub(super) revision: u64,
    pub(super) changes: Vec<WatchChange>,
}

impl CommittedTxn {
    fn bytes(&self) -> usize {
        let of = |change: &WatchChange| match change {
            WatchChange::Put(kv) => kv.key.len() + kv.value.len(),
            WatchChange::Delete { key } => key.len(),
        };
        // The structures count too, or many tiny changes would weigh nothing.
        self.changes.iter().map(|change| of(change) + size_of::<WatchChange>()).sum::<usize>() + size_of::<Self>()
    }
}

/// Recent transactions, shared by all watches. A watch that falls behind continues from the file.
#[derive(Debug, Default)]
pub(super) struct Recent(RwLock<Ring>);

#[derive(Debug, Default)]
struct Ring {
    commits: VecDeque<Arc<CommittedTxn>>,
    bytes: usize,
}

/// Enough for one second of a busy fleet.
const MAX_COMMITS: usize = 4096;
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Transactions for a watch.
#[derive(Debug)]
pub(super) enum RecentCommits {
    /// The next transactions.
    Found(Vec<Arc<CommittedTxn>>),
    /// There are no newer transactions.
    UpToDate,
    /// They are not in memory; the file has them.
    OnDisk,
}

impl Recent {
    /// Adds the next transactions, in order.
    pub(super) fn extend(&self, commits: impl IntoIterator<Item = CommittedTxn>) {
        let mut ring = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for commit in commits {
            ring.bytes += commit.bytes();
            ring.commits.push_back(Arc::new(commit));
        }
        while ring.commits.len() > MAX_COMMITS || ring.bytes > MAX_BYTES {
            let Some(oldest) = ring.commits.pop_front() else { break };
            ring.bytes -= oldest.bytes();
        }
    }

    /// Removes everything: the next transactions do not follow the present ones.
    pub(super) fn clear(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Ring::default();
    }

    /// At most `limit` transactions from revision `next` on. `head` is the latest revision.
    pub(super) fn from(&self, next: u64, head: u64, limit: usize) -> RecentCommits {
        let ring = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if next > head {
            return RecentCommits::UpToDate;
        }
        // Revisions have no holes, so the index is a subtraction.
        let found = ring.commits.front().and_then(|first| next.checked_sub(first.revision));
        let found = found.and_then(|skip| usize::try_from(skip).ok()).filter(|skip| *skip < ring.commits.len());
        match found {
            Some(skip) => RecentCommits::Found(ring.commits.iter().skip(skip).take(limit).cloned().collect()),
            None => RecentCommits::OnDisk,
        }
    }
}
