//! A watch that is read from time to time, with every event compared with the expected state.

use std::time::Duration;

use muster_store::{GapCause, Watch, WatchChange, WatchEvent, WatchFrom};

use crate::side::{At, Side};
use crate::{State, Truth};

/// A watch without an event for this long never has one.
const NEVER: Duration = Duration::from_secs(20);

pub(crate) struct Following {
    watch: Watch,
    prefix: &'static str,
    /// The last delivered revision; none before the first snapshot.
    delivered: Option<At>,
    copy: State,
    /// Nothing was read yet, and its start is not decided.
    fresh: bool,
    in_snapshot: bool,
}

impl Following {
    /// Starts a watch, after a revision if one is given.
    pub(crate) fn start(side: &Side, prefix: &'static str, after: Option<At>) -> Self {
        let from = after.map_or(WatchFrom::Now, |at| WatchFrom::After(side.revision(at)));
        let watch = side.store().watch(prefix, from);
        Self { watch, prefix, delivered: after, copy: State::new(), fresh: true, in_snapshot: after.is_none() }
    }

    /// Continues after its last revision, as after a restart of the store.
    pub(crate) fn resume(self, side: &Side) -> Self {
        Self::start(side, self.prefix, self.delivered)
    }

    /// Reads until all changes up to now are delivered.
    pub(crate) async fn drain(&mut self, side: &Side, truth: &Truth) {
        let watch_name = format!("the watch of {}", side.name);
        if self.fresh
            && let Some(after) = self.delivered
        {
            self.expect_first(side, truth, after, &watch_name).await;
        }
        self.fresh = false;
        while self.in_snapshot || self.delivered < Some(truth.head()) {
            let event = self.next(&watch_name, truth).await;
            self.check_event(side, truth, event, &watch_name);
        }
        assert_eq!(self.copy, truth.at(truth.head(), self.prefix), "{watch_name} ends with another state");
    }

    /// A watch that cannot start at its revision begins with a gap, and no other does.
    async fn expect_first(&mut self, side: &Side, truth: &Truth, after: At, watch_name: &str) {
        let cause = if after > truth.head() {
            GapCause::Ahead { head: side.revision(truth.head()) }
        } else if after < truth.compacted {
            GapCause::Compacted { oldest: side.revision(truth.compacted) }
        } else {
            // The reader knows the state at its start revision.
            self.copy = truth.at(after, self.prefix);
            return;
        };
        let event = self.next(watch_name, truth).await;
        assert_eq!(event, WatchEvent::Gap { after: side.revision(after), cause }, "{watch_name} starts");
        self.start_again();
    }

    async fn next(&mut self, watch_name: &str, truth: &Truth) -> WatchEvent {
        let next = tokio::time::timeout(NEVER, self.watch.next()).await;
        let next = next.unwrap_or_else(|_| {
            panic!("{watch_name} sends no event: delivered {:?} of {}", self.delivered, truth.head())
        });
        next.unwrap_or_else(|error| panic!("{watch_name}: {error}"))
    }

    fn start_again(&mut self) {
        self.copy.clear();
        self.in_snapshot = true;
    }

    fn check_event(&mut self, side: &Side, truth: &Truth, event: WatchEvent, watch_name: &str) {
        match event {
            WatchEvent::Snapshot(kvs) => {
                assert!(self.in_snapshot, "{watch_name}: a snapshot without a gap");
                self.copy.extend(kvs.into_iter().map(|kv| side.kv(kv)).map(|kv| (kv.key.clone(), kv)));
            }
            WatchEvent::SnapshotEnd { revision } => {
                assert!(self.in_snapshot, "{watch_name}: the end of a snapshot that never began");
                let at = side.at(revision);
                assert_eq!(self.copy, truth.at(at, self.prefix), "{watch_name}: the snapshot at {at}");
                self.delivered = Some(at);
                self.in_snapshot = false;
            }
            WatchEvent::Changes { revision, changes } => {
                let at = self.moved(side.at(revision), watch_name);
                truth.nothing_between(self.delivered.unwrap() + 1, at, self.prefix, watch_name);
                let mut changes: Vec<_> = changes
                    .into_iter()
                    .map(|change| match change {
                        WatchChange::Put(kv) => (kv.key.clone(), Some(side.kv(kv))),
                        WatchChange::Delete { key } => (key, None),
                    })
                    .collect();
                changes.sort();
                assert_eq!(changes, truth.changes(at, self.prefix), "{watch_name}: the changes at {at}");
                self.copy = truth.at(at, self.prefix);
                self.delivered = Some(at);
            }
            WatchEvent::Progress { revision } => {
                let at = self.moved(side.at(revision), watch_name);
                let delivered = self.delivered.unwrap();
                if side.reports_all_changes {
                    truth.nothing_between(delivered + 1, at + 1, self.prefix, watch_name);
                }
                assert_eq!(
                    truth.at(delivered, self.prefix),
                    truth.at(at, self.prefix),
                    "{watch_name}: progress from {delivered} to {at}"
                );
                self.delivered = Some(at);
            }
            WatchEvent::Gap { after, cause } => {
                assert_eq!(
                    Some(side.at(after)),
                    self.delivered,
                    "{watch_name}: a gap after another revision than the last delivered one"
                );
                let GapCause::Compacted { oldest } = cause else { panic!("{watch_name}: a gap because of {cause:?}") };
                // It may have noticed an earlier compaction than the last one.
                let oldest = side.at(oldest);
                let (delivered, compacted) = (self.delivered.unwrap(), truth.compacted);
                assert!(
                    delivered < oldest && oldest <= compacted,
                    "{watch_name}: delivered {delivered}, gap to {oldest} of {compacted}"
                );
                self.start_again();
            }
        }
    }

    /// Revisions grow, and exist.
    fn moved(&self, at: At, watch_name: &str) -> At {
        assert!(!self.in_snapshot, "{watch_name}: {at} within a snapshot");
        assert!(self.delivered < Some(at), "{watch_name}: {at} after {:?}", self.delivered);
        at
    }
}
