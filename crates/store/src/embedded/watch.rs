//! A watch of an embedded prefix: a state machine that is polled, without a task or queue of its own. It reads recent
//! transactions from memory: watches that keep up never read the file.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use futures::stream::{self, Stream};
use muster_core::txn::Revision;
use tokio::sync::watch;

use crate::store::StoreError;
use crate::watch::{GapCause, WatchChange, WatchEvent, WatchFrom};

use super::format::StoreCounters;
use super::read::{self, PageRequest};
use super::shared::{CommitPosition, EmbeddedShared};

/// Keys of one snapshot event, and transactions that are read from memory at once.
const BATCH: usize = 512;

/// The next step of the watch.
#[derive(Debug)]
enum EmbeddedWatchPhase {
    /// Checks that the history after this revision still exists.
    Resume { after: u64 },
    /// Reads the keys after this one, at the latest revision if none is set yet. No read transaction stays open between
    /// two pages, so that a slow reader does not block the reuse of old pages.
    Snapshot { at: Option<u64>, after: Option<String> },
    /// Delivers the changes from this revision on.
    Live { next: u64 },
}

#[derive(Debug)]
pub(super) struct EmbeddedWatch {
    shared: Arc<EmbeddedShared>,
    position: watch::Receiver<CommitPosition>,
    prefix: String,
    phase: EmbeddedWatchPhase,
    /// Events that are ready to deliver: at most one batch of the history.
    ready: VecDeque<WatchEvent>,
    /// The revision up to which the reader has received everything.
    delivered: u64,
}

impl EmbeddedWatch {
    pub(super) fn new(shared: Arc<EmbeddedShared>, prefix: &str, from: WatchFrom) -> Self {
        let position = shared.position.clone();
        let phase = match from {
            WatchFrom::Now => EmbeddedWatchPhase::Snapshot { at: None, after: None },
            WatchFrom::After(Revision(after)) => EmbeddedWatchPhase::Resume { after },
        };
        Self { shared, position, prefix: prefix.to_owned(), phase, ready: VecDeque::new(), delivered: 0 }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Result<WatchEvent, StoreError>> + Send {
        stream::unfold(self, |mut state| async {
            let event = state.next().await;
            Some((event, state))
        })
    }

    async fn next(&mut self) -> Result<WatchEvent, StoreError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            match &self.phase {
                EmbeddedWatchPhase::Resume { after } => self.resume(*after).await?,
                EmbeddedWatchPhase::Snapshot { at, after } => {
                    let (at, after) = (*at, after.clone());
                    self.snapshot(at, after).await?;
                }
                EmbeddedWatchPhase::Live { next } => self.live(*next).await?,
            }
        }
    }

    async fn resume(&mut self, after: u64) -> Result<(), StoreError> {
        // From the file: a reader may have seen a revision there before the writer publishes it.
        let StoreCounters { head, compacted, .. } = self.shared.read(read::counters).await?;
        self.delivered = after;
        if after > head {
            self.gap(GapCause::Ahead { head: Revision(head) });
        } else if after < compacted {
            self.gap(GapCause::Compacted { oldest: Revision(compacted) });
        } else {
            self.phase = EmbeddedWatchPhase::Live { next: after + 1 };
        }
        Ok(())
    }

    async fn snapshot(&mut self, at: Option<u64>, after: Option<String>) -> Result<(), StoreError> {
        let request = PageRequest { prefix: self.prefix.clone(), at, after, limit: BATCH };
        match self.shared.read(move |txn| read::page(txn, &request)).await {
            Ok(page) => {
                let last = page.kvs.last().map(|kv| kv.key.clone());
                if !page.kvs.is_empty() {
                    self.ready.push_back(WatchEvent::Snapshot(page.kvs));
                }
                self.delivered = page.revision;
                if page.more {
                    self.phase = EmbeddedWatchPhase::Snapshot { at: Some(page.revision), after: last };
                } else {
                    self.ready.push_back(WatchEvent::SnapshotEnd { revision: Revision(page.revision) });
                    self.phase = EmbeddedWatchPhase::Live { next: page.revision + 1 };
                }
                Ok(())
            }
            Err(StoreError::Compacted { oldest, .. }) => {
                self.gap(GapCause::Compacted { oldest });
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    async fn live(&mut self, next: u64) -> Result<(), StoreError> {
        // Read before the recent transactions, so that a later change wakes this watch.
        let head = self.position.borrow_and_update().head;
        match self.shared.recent.from(next, head, BATCH) {
            RecentCommits::Found(commits) => {
                self.deliver(next, commits.iter().map(|commit| (commit.revision, self.matching(commit))).collect());
            }
            RecentCommits::OnDisk => {
                let prefix = self.prefix.clone();
                match self.shared.read(move |txn| read::history(txn, next, &prefix)).await {
                    Ok(commits) => self.deliver(next, commits.into_iter().map(|c| (c.revision, c.changes)).collect()),
                    Err(StoreError::Compacted { oldest, .. }) => self.gap(GapCause::Compacted { oldest }),
                    Err(other) => return Err(other),
                }
            }
            RecentCommits::UpToDate if self.delivered + 1 < next => {
                self.delivered = next - 1;
                self.ready.push_back(WatchEvent::Progress { revision: Revision(self.delivered) });
            }
            RecentCommits::UpToDate => self.position.changed().await.map_err(|_| StoreError::Closed)?,
        }
        Ok(())
    }

    fn matching(&self, commit: &CommittedTxn) -> Vec<WatchChange> {
        commit.changes.iter().filter(|change| change.key().starts_with(&self.prefix)).cloned().collect()
    }

    fn deliver(&mut self, mut next: u64, commits: Vec<(u64, Vec<WatchChange>)>) {
        for (revision, changes) in commits {
            next = revision + 1;
            if !changes.is_empty() {
                self.delivered = revision;
                self.ready.push_back(WatchEvent::Changes { revision: Revision(revision), changes });
            }
        }
        self.phase = EmbeddedWatchPhase::Live { next };
    }

    fn gap(&mut self, cause: GapCause) {
        self.ready.push_back(WatchEvent::Gap { after: Revision(self.delivered), cause });
        self.phase = EmbeddedWatchPhase::Snapshot { at: None, after: None };
    }
}

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
pub(super) struct RecentTxns(RwLock<Ring>);

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

impl RecentTxns {
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
