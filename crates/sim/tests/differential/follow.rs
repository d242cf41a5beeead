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
    told: Option<At>,
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
        Self { watch, prefix, told: after, copy: State::new(), fresh: true, in_snapshot: after.is_none() }
    }

    /// Continues after its last revision, as after a restart of the store.
    pub(crate) fn resume(self, side: &Side) -> Self {
        Self::start(side, self.prefix, self.told)
    }

    /// Reads until all changes up to now are delivered.
    pub(crate) async fn drain(&mut self, side: &Side, truth: &Truth) {
        let who = format!("the watch of {}", side.name);
        if self.fresh
            && let Some(after) = self.told
        {
            self.expect_first(side, truth, after, &who).await;
        }
        self.fresh = false;
        while self.in_snapshot || self.told < Some(truth.head()) {
            let event = self.next(&who, truth).await;
            self.take(side, truth, event, &who);
        }
        assert_eq!(self.copy, truth.at(truth.head(), self.prefix), "{who} ends with another state");
    }

    /// A watch that cannot start at its revision begins with a gap, and no other does.
    async fn expect_first(&mut self, side: &Side, truth: &Truth, after: At, who: &str) {
        let cause = if after > truth.head() {
            GapCause::Ahead { head: side.revision(truth.head()) }
        } else if after < truth.compacted {
            GapCause::Compacted { oldest: side.revision(truth.compacted) }
        } else {
            // The reader knows the state at its start revision.
            self.copy = truth.at(after, self.prefix);
            return;
        };
        let event = self.next(who, truth).await;
        assert_eq!(event, WatchEvent::Gap { after: side.revision(after), cause }, "{who} starts");
        self.start_again();
    }

    async fn next(&mut self, who: &str, truth: &Truth) -> WatchEvent {
        let next = tokio::time::timeout(NEVER, self.watch.next()).await;
        let next = next.unwrap_or_else(|_| panic!("{who} says nothing: told {:?} of {}", self.told, truth.head()));
        next.unwrap_or_else(|error| panic!("{who}: {error}"))
    }

    fn start_again(&mut self) {
        self.copy.clear();
        self.in_snapshot = true;
    }

    fn take(&mut self, side: &Side, truth: &Truth, event: WatchEvent, who: &str) {
        match event {
            WatchEvent::Snapshot(kvs) => {
                assert!(self.in_snapshot, "{who}: a snapshot without a gap");
                self.copy.extend(kvs.into_iter().map(|kv| side.kv(kv)).map(|kv| (kv.key.clone(), kv)));
            }
            WatchEvent::SnapshotEnd { revision } => {
                assert!(self.in_snapshot, "{who}: the end of a snapshot that never began");
                let at = side.at(revision);
                assert_eq!(self.copy, truth.at(at, self.prefix), "{who}: the snapshot at {at}");
                self.told = Some(at);
                self.in_snapshot = false;
            }
            WatchEvent::Changes { revision, changes } => {
                let at = self.moved(side.at(revision), who);
                truth.nothing_between(self.told.unwrap() + 1, at, self.prefix, who);
                let mut changes: Vec<_> = changes
                    .into_iter()
                    .map(|change| match change {
                        WatchChange::Put(kv) => (kv.key.clone(), Some(side.kv(kv))),
                        WatchChange::Delete { key } => (key, None),
                    })
                    .collect();
                changes.sort();
                assert_eq!(changes, truth.changes(at, self.prefix), "{who}: the changes at {at}");
                self.copy = truth.at(at, self.prefix);
                self.told = Some(at);
            }
            WatchEvent::Progress { revision } => {
                let at = self.moved(side.at(revision), who);
                let told = self.told.unwrap();
                if side.tells_all {
                    truth.nothing_between(told + 1, at + 1, self.prefix, who);
                }
                assert_eq!(
                    truth.at(told, self.prefix),
                    truth.at(at, self.prefix),
                    "{who}: progress from {told} to {at}"
                );
                self.told = Some(at);
            }
            WatchEvent::Gap { after, cause } => {
                assert_eq!(Some(side.at(after)), self.told, "{who}: a gap after what was told");
                let GapCause::Compacted { oldest } = cause else { panic!("{who}: a gap because of {cause:?}") };
                // It may have noticed an earlier compaction than the last one.
                let oldest = side.at(oldest);
                let (told, compacted) = (self.told.unwrap(), truth.compacted);
                assert!(told < oldest && oldest <= compacted, "{who}: told {told}, gap to {oldest} of {compacted}");
                self.start_again();
            }
        }
    }

    /// Revisions grow, and exist.
    fn moved(&self, at: At, who: &str) -> At {
        assert!(!self.in_snapshot, "{who}: {at} within a snapshot");
        assert!(self.told < Some(at), "{who}: {at} after {:?}", self.told);
        at
    }
}
