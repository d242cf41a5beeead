//! One watch of the model: reads new changes from the history, and waits for more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, Stream};
use muster_store::{GapCause, Revision, StoreError, WatchChange, WatchEvent, WatchFrom};
use tokio::sync::watch;

use crate::model::SharedStore;
use crate::model::faults::{self, Faults, WatchFault};
use crate::model::history::{History, cut};

/// Keys per snapshot event: few, and small tests get snapshots of several parts.
const PAGE: usize = 100;

#[derive(Debug)]
pub(crate) struct WatchStream {
    shared: Arc<SharedStore>,
    faults: Faults,
    moves: watch::Receiver<()>,
    prefix: String,
    /// None: start with a snapshot.
    after: Option<Revision>,
    /// Events that are ready to be delivered.
    ready: VecDeque<WatchEvent>,
    /// The last delivered revision.
    delivered: Option<Revision>,
}

impl WatchStream {
    pub(crate) fn new(shared: Arc<SharedStore>, faults: Faults, prefix: &str, from: WatchFrom) -> Self {
        let moves = shared.moves();
        let after = match from {
            WatchFrom::Now => None,
            WatchFrom::After(revision) => Some(revision),
        };
        Self { shared, faults, moves, prefix: prefix.to_owned(), after, ready: VecDeque::new(), delivered: after }
    }

    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<WatchEvent, StoreError>> + Send {
        stream::unfold(self, |mut follower| async {
            let event = follower.next().await;
            Some((event, follower))
        })
    }

    async fn next(&mut self) -> Result<WatchEvent, StoreError> {
        self.faults.delay().await;
        while self.ready.is_empty() {
            self.faults.let_through().await;
            // Marked before the history is read, since later changes must wake the watch.
            self.moves.mark_unchanged();
            let deadline = self.read_events();
            if self.ready.is_empty() {
                tokio::select! {
                    moved = self.moves.changed() => moved.map_err(|_| StoreError::Closed)?,
                    () = reached(&self.shared, deadline) => {}
                }
            }
        }
        match self.faults.of_watch() {
            WatchFault::Interrupted => return Err(faults::unavailable()),
            WatchFault::Lost if self.delivered.is_some() => self.start_again(GapCause::Lost),
            WatchFault::Lost | WatchFault::Delivered => {}
        }
        let event = self.ready.pop_front().ok_or(StoreError::Closed)?;
        match &event {
            WatchEvent::SnapshotEnd { revision }
            | WatchEvent::Changes { revision, .. }
            | WatchEvent::Progress { revision } => {
                self.delivered = Some(*revision);
            }
            WatchEvent::Snapshot(_) | WatchEvent::Gap { .. } => {}
        }
        Ok(event)
    }

    /// Reads new events. Returns the time until the next lease expires.
    fn read_events(&mut self) -> Option<Duration> {
        let (shared, prefix) = (Arc::clone(&self.shared), self.prefix.clone());
        let cut_changes = |changes: &Vec<WatchChange>| -> Vec<_> {
            changes.iter().filter(|change| change.key().starts_with(&prefix)).cloned().collect()
        };
        shared.with(|history| {
            match self.after.map(|after| history.after(after)) {
                None => self.snapshot(history),
                Some(Ok(commits)) => {
                    let all = commits.map(|(revision, changes)| (revision, cut_changes(changes)));
                    let ours = all.filter(|(_, changes)| !changes.is_empty());
                    self.ready.extend(ours.map(|(revision, changes)| WatchEvent::Changes { revision, changes }));
                    self.after = Some(history.head());
                    let queued = match self.ready.back() {
                        Some(WatchEvent::Changes { revision, .. }) => Some(*revision),
                        _ => self.delivered,
                    };
                    if queued < self.after {
                        self.ready.push_back(WatchEvent::Progress { revision: history.head() });
                    }
                }
                Some(Err(StoreError::Compacted { oldest, .. })) => self.start_again(GapCause::Compacted { oldest }),
                Some(Err(_)) => self.start_again(GapCause::Ahead { head: history.head() }),
            }
            history.next_deadline()
        })
    }

    fn snapshot(&mut self, history: &History) {
        let kvs = cut(history.now(), &self.prefix);
        self.ready.extend(kvs.chunks(PAGE).map(|page| WatchEvent::Snapshot(page.to_vec())));
        self.ready.push_back(WatchEvent::SnapshotEnd { revision: history.head() });
        self.after = Some(history.head());
    }

    /// Restarts with a gap and a snapshot.
    fn start_again(&mut self, cause: GapCause) {
        self.ready.clear();
        self.ready.push_back(WatchEvent::Gap { after: self.delivered.unwrap_or_default(), cause });
        self.after = None;
    }
}

async fn reached(shared: &SharedStore, deadline: Option<Duration>) {
    match deadline {
        Some(deadline) => shared.clock.reached(deadline).await,
        None => std::future::pending().await,
    }
}
