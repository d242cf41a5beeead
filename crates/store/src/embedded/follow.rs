//! One watch: a small state machine that pulls. It has no task and no queue that others fill.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{self, Stream};
use muster_core::txn::Revision;
use tokio::sync::watch;

use super::numbers::Numbers;
use super::read::{self, Wanted};
use super::recent::{Commit, Next};
use super::shared::{Position, Shared};
use crate::error::StoreError;
use crate::watch::{Change, Event, GapCause, WatchFrom};

/// How many keys a snapshot says at once, and how many transactions are taken from memory at once.
const AT_ONCE: usize = 512;

/// What the watch has to do next.
#[derive(Debug)]
enum Phase {
    /// Nothing was said yet, and the reader knows the state at this revision.
    Resume { after: u64 },
    /// Says all keys after this one; at the latest revision if none is chosen yet. No read transaction is held
    /// between two pages, so that a slow reader does not keep old pages from being used again.
    Snapshot { at: Option<u64>, after: Option<String> },
    /// Says what happens from this revision on.
    Live { next: u64 },
}

#[derive(Debug)]
pub(super) struct Follower {
    shared: Arc<Shared>,
    position: watch::Receiver<Position>,
    prefix: String,
    phase: Phase,
    /// Events that are known already: at most one stretch of the history.
    ready: VecDeque<Event>,
    /// Up to where the reader has been told.
    told: u64,
}

impl Follower {
    pub(super) fn new(shared: Arc<Shared>, prefix: &str, from: WatchFrom) -> Self {
        let position = shared.position.clone();
        let phase = match from {
            WatchFrom::Now => Phase::Snapshot { at: None, after: None },
            WatchFrom::After(Revision(after)) => Phase::Resume { after },
        };
        Self { shared, position, prefix: prefix.to_owned(), phase, ready: VecDeque::new(), told: 0 }
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Result<Event, StoreError>> + Send {
        stream::unfold(self, |mut follower| async {
            let event = follower.next().await;
            Some((event, follower))
        })
    }

    async fn next(&mut self) -> Result<Event, StoreError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            match &self.phase {
                Phase::Resume { after } => self.resume(*after).await?,
                Phase::Snapshot { at, after } => {
                    let (at, after) = (*at, after.clone());
                    self.snapshot(at, after).await?;
                }
                Phase::Live { next } => self.live(*next).await?,
            }
        }
    }

    async fn resume(&mut self, after: u64) -> Result<(), StoreError> {
        // From the file, which a reader may have seen a moment before the writer tells of it.
        let Numbers { head, compacted, .. } = self.shared.read(read::numbers).await?;
        self.told = after;
        if after > head {
            self.gap(GapCause::Ahead { head: Revision(head) });
        } else if after < compacted {
            self.gap(GapCause::Compacted { oldest: Revision(compacted) });
        } else {
            self.phase = Phase::Live { next: after + 1 };
        }
        Ok(())
    }

    async fn snapshot(&mut self, at: Option<u64>, after: Option<String>) -> Result<(), StoreError> {
        let wanted = Wanted { prefix: self.prefix.clone(), at, after, limit: AT_ONCE };
        match self.shared.read(move |txn| read::page(txn, &wanted)).await {
            Ok(page) => {
                let last = page.kvs.last().map(|kv| kv.key.clone());
                if !page.kvs.is_empty() {
                    self.ready.push_back(Event::Snapshot(page.kvs));
                }
                self.told = page.revision;
                if page.more {
                    self.phase = Phase::Snapshot { at: Some(page.revision), after: last };
                } else {
                    self.ready.push_back(Event::SnapshotEnd { revision: Revision(page.revision) });
                    self.phase = Phase::Live { next: page.revision + 1 };
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
        // Seen before the look into memory, so that what comes after it wakes us.
        let head = self.position.borrow_and_update().head;
        match self.shared.recent.from(next, head, AT_ONCE) {
            Next::Commits(commits) => {
                self.tell(next, commits.iter().map(|commit| (commit.revision, self.matching(commit))).collect());
            }
            Next::OnFile => {
                let prefix = self.prefix.clone();
                match self.shared.read(move |txn| read::stretch(txn, next, &prefix)).await {
                    Ok(commits) => self.tell(next, commits.into_iter().map(|c| (c.revision, c.changes)).collect()),
                    Err(StoreError::Compacted { oldest, .. }) => self.gap(GapCause::Compacted { oldest }),
                    Err(other) => return Err(other),
                }
            }
            Next::Nothing if self.told + 1 < next => {
                self.told = next - 1;
                self.ready.push_back(Event::Progress { revision: Revision(self.told) });
            }
            Next::Nothing => self.position.changed().await.map_err(|_| StoreError::Closed)?,
        }
        Ok(())
    }

    fn matching(&self, commit: &Commit) -> Vec<Change> {
        commit.changes.iter().filter(|change| change.key().starts_with(&self.prefix)).cloned().collect()
    }

    fn tell(&mut self, mut next: u64, commits: Vec<(u64, Vec<Change>)>) {
        for (revision, changes) in commits {
            next = revision + 1;
            if !changes.is_empty() {
                self.told = revision;
                self.ready.push_back(Event::Changes { revision: Revision(revision), changes });
            }
        }
        self.phase = Phase::Live { next };
    }

    fn gap(&mut self, cause: GapCause) {
        self.ready.push_back(Event::Gap { after: Revision(self.told), cause });
        self.phase = Phase::Snapshot { at: None, after: None };
    }
}
