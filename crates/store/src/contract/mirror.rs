//! A copy of a prefix that is kept by a watch, as the server's view is. It checks the rules of [`WatchEvent`].

use std::collections::BTreeMap;

use muster_core::txn::Revision;

use crate::error::StoreError;
use crate::store::{KeyValue, Store};
use crate::watch::{Watch, WatchChange, WatchEvent, WatchFrom};

pub(super) fn as_text(change: WatchChange) -> (String, Option<String>) {
    match change {
        WatchChange::Put(kv) => (kv.key, Some(String::from_utf8(kv.value.to_vec()).unwrap())),
        WatchChange::Delete { key } => (key, None),
    }
}

/// A copy of all keys under a prefix. It panics when the watch breaks its rules.
#[derive(Debug)]
pub struct Mirror {
    watch: Watch,
    pub copy: BTreeMap<String, KeyValue>,
    pub revision: Revision,
    pub gaps: usize,
    in_snapshot: bool,
}

impl Mirror {
    pub fn new(store: &dyn Store, prefix: &str) -> Self {
        let watch = store.watch(prefix, WatchFrom::Now);
        Self { watch, copy: BTreeMap::new(), revision: Revision(0), gaps: 0, in_snapshot: true }
    }

    /// Follows the watch until the copy has reached a revision.
    pub async fn reach(&mut self, revision: Revision) {
        while !self.has_reached(revision) {
            self.step().await.unwrap();
        }
    }

    /// Whether the copy has reached a revision.
    pub fn has_reached(&self, revision: Revision) -> bool {
        !self.in_snapshot && self.revision >= revision
    }

    /// Handles one event. After an error the next call continues.
    pub async fn step(&mut self) -> Result<(), StoreError> {
        let event = self.watch.next().await?;
        self.take(event);
        Ok(())
    }

    fn take(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Snapshot(kvs) => {
                assert!(self.in_snapshot, "a snapshot without a gap before it");
                for kv in kvs {
                    let key = kv.key.clone();
                    assert!(self.copy.insert(key.clone(), kv).is_none(), "{key} is twice in the snapshot");
                }
            }
            WatchEvent::SnapshotEnd { revision } => {
                assert!(self.in_snapshot, "the end of a snapshot that never began");
                self.in_snapshot = false;
                self.revision = revision;
            }
            WatchEvent::Changes { revision, changes } => {
                assert!(!self.in_snapshot, "a change within a snapshot");
                assert!(revision > self.revision, "{revision} came after {}", self.revision);
                assert!(!changes.is_empty(), "changes that change nothing");
                self.revision = revision;
                for change in changes {
                    match change {
                        WatchChange::Put(kv) => {
                            assert_eq!(kv.revision, revision);
                            self.copy.insert(kv.key.clone(), kv);
                        }
                        WatchChange::Delete { key } => {
                            assert!(self.copy.remove(&key).is_some(), "{key} was deleted, but was not there");
                        }
                    }
                }
            }
            WatchEvent::Progress { revision } => {
                assert!(!self.in_snapshot, "progress within a snapshot");
                assert!(revision > self.revision, "progress to {revision} after {}", self.revision);
                self.revision = revision;
            }
            WatchEvent::Gap { .. } => {
                self.gaps += 1;
                self.in_snapshot = true;
                self.copy.clear();
            }
        }
    }
}
