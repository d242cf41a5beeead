//! A reader that keeps a copy by watching, as every view does, and checks the rules of [`Event`] on the way.

use std::collections::BTreeMap;

use muster_core::txn::Revision;

use crate::store::{KeyValue, Store};
use crate::watch::{Change, Event, Watch, WatchFrom};

pub(super) fn as_text(change: Change) -> (String, Option<String>) {
    match change {
        Change::Put(kv) => (kv.key, Some(String::from_utf8(kv.value.to_vec()).unwrap())),
        Change::Delete { key } => (key, None),
    }
}

pub(super) struct Mirror {
    watch: Watch,
    pub(super) copy: BTreeMap<String, KeyValue>,
    pub(super) revision: Revision,
    pub(super) gaps: usize,
    in_snapshot: bool,
}

impl Mirror {
    pub(super) fn new(store: &dyn Store, prefix: &str) -> Self {
        let watch = store.watch(prefix, WatchFrom::Now);
        Self { watch, copy: BTreeMap::new(), revision: Revision(0), gaps: 0, in_snapshot: true }
    }

    /// Follows the watch until the copy is that of a revision, or a later one.
    pub(super) async fn reach(&mut self, revision: Revision) {
        while self.in_snapshot || self.revision < revision {
            let event = self.watch.next().await.unwrap();
            self.take(event);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Snapshot(kvs) => {
                assert!(self.in_snapshot, "a snapshot without a gap before it");
                for kv in kvs {
                    let key = kv.key.clone();
                    assert!(self.copy.insert(key.clone(), kv).is_none(), "{key} is twice in the snapshot");
                }
            }
            Event::SnapshotEnd { revision } => {
                assert!(self.in_snapshot, "the end of a snapshot that never began");
                self.in_snapshot = false;
                self.revision = revision;
            }
            Event::Changes { revision, changes } => {
                assert!(!self.in_snapshot, "a change within a snapshot");
                assert!(revision > self.revision, "{revision} came after {}", self.revision);
                assert!(!changes.is_empty(), "changes that change nothing");
                self.revision = revision;
                for change in changes {
                    match change {
                        Change::Put(kv) => {
                            assert_eq!(kv.revision, revision);
                            self.copy.insert(kv.key.clone(), kv);
                        }
                        Change::Delete { key } => {
                            assert!(self.copy.remove(&key).is_some(), "{key} was deleted, but was not there");
                        }
                    }
                }
            }
            Event::Progress { revision } => {
                assert!(!self.in_snapshot, "progress within a snapshot");
                assert!(revision > self.revision, "progress to {revision} after {}", self.revision);
                self.revision = revision;
            }
            Event::Gap { .. } => {
                self.gaps += 1;
                self.in_snapshot = true;
                self.copy.clear();
            }
        }
    }
}
