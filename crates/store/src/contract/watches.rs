//! Contract tests of watches: a snapshot, all changes, and gaps. [`Mirror`] checks the rules of [`WatchEvent`].

use std::collections::BTreeMap;

use muster_core::txn::{Op, Revision, Txn};

use crate::store::{KeyValue, Store, StoreError};
use crate::watch::{GapCause, Watch, WatchChange, WatchEvent, WatchFrom};

use super::{ContractSubject, all, changes, commit, delete, news, put, snapshot, text};

fn pair(key: &str, value: &str) -> (String, Option<String>) {
    (key.to_owned(), Some(value.to_owned()))
}

pub async fn watch_starts_with_a_snapshot_then_changes(subject: &dyn ContractSubject) {
    let store = subject.store();
    put(&*store, "a/1", "x").await;
    let before = put(&*store, "b", "x").await;

    let mut watch = store.watch("a/", WatchFrom::Now);
    let (kvs, revision) = snapshot(&mut watch).await;
    assert_eq!((text(&kvs), revision), (vec![("a/1", "x")], before));

    let second = put(&*store, "a/2", "y").await;
    let third = delete(&*store, "a/1").await;
    assert_eq!(changes(&mut watch).await, (second, vec![pair("a/2", "y")]));
    assert_eq!(changes(&mut watch).await, (third, vec![("a/1".into(), None)]));
}

pub async fn snapshot_of_no_keys_is_empty(subject: &dyn ContractSubject) {
    let store = subject.store();
    let head = store.revision().await.unwrap();
    let mut watch = store.watch("nothing/", WatchFrom::Now);
    assert_eq!(watch.next().await.unwrap(), WatchEvent::SnapshotEnd { revision: head });
}

pub async fn large_snapshot_is_complete(subject: &dyn ContractSubject) {
    let store = subject.store();
    for hundred in 0..13 {
        let txn = (0..100).fold(Txn::new(), |txn, n| txn.op(Op::put(format!("n/{hundred:02}/{n:02}"), "1")));
        commit(&*store, txn).await;
    }
    let mut mirror = Mirror::new(&*store, "n/");
    // Changes during the snapshot must not show in it.
    let revision = commit(&*store, Txn::new().op(Op::delete("n/00/00")).op(Op::put("n/12/99", "2"))).await;
    mirror.reach(revision).await;
    assert_eq!(mirror.copy.into_values().collect::<Vec<_>>(), all(&*store, "n/").await);
}

pub async fn transaction_is_one_event_within_the_prefix(subject: &dyn ContractSubject) {
    let store = subject.store();
    put(&*store, "a/0", "x").await;
    let mut watch = store.watch("a/", WatchFrom::Now);
    snapshot(&mut watch).await;

    let txn = Txn::new().op(Op::put("a/2", "x")).op(Op::put("b", "x")).op(Op::delete("a/0")).op(Op::put("a/1", "x"));
    let revision = commit(&*store, txn).await;
    let (at, mut seen) = changes(&mut watch).await;
    seen.sort();
    assert_eq!(at, revision);
    assert_eq!(seen, [("a/0".into(), None), pair("a/1", "x"), pair("a/2", "x")]);
}

pub async fn changes_outside_the_prefix_are_progress(subject: &dyn ContractSubject) {
    let store = subject.store();
    let mut mirror = Mirror::new(&*store, "a/");
    let elsewhere = put(&*store, "a0", "x").await;
    // Without progress this would never end.
    mirror.reach(elsewhere).await;
    assert!(mirror.copy.is_empty());

    let mut watch = store.watch("a/", WatchFrom::After(elsewhere));
    put(&*store, "b", "x").await;
    let here = put(&*store, "a/1", "x").await;
    assert_eq!(changes(&mut watch).await, (here, vec![pair("a/1", "x")]));
}

pub async fn watch_can_start_at_a_past_revision(subject: &dyn ContractSubject) {
    let store = subject.store();
    let start = put(&*store, "k", "0").await;
    let first = put(&*store, "k", "1").await;
    let second = commit(&*store, Txn::new().op(Op::put("k", "2")).op(Op::put("l", "2"))).await;
    let third = delete(&*store, "k").await;

    let mut watch = store.watch("", WatchFrom::After(start));
    assert_eq!(changes(&mut watch).await, (first, vec![pair("k", "1")]));
    assert_eq!(changes(&mut watch).await, (second, vec![pair("k", "2"), pair("l", "2")]));
    assert_eq!(changes(&mut watch).await, (third, vec![("k".into(), None)]));

    let fourth = put(&*store, "k", "4").await;
    assert_eq!(changes(&mut watch).await, (fourth, vec![pair("k", "4")]));
    let mut latest = store.watch("", WatchFrom::After(fourth));
    let fifth = put(&*store, "k", "5").await;
    assert_eq!(changes(&mut latest).await, (fifth, vec![pair("k", "5")]));
}

pub async fn compacted_start_is_a_gap_and_a_snapshot(subject: &dyn ContractSubject) {
    let store = subject.store();
    let first = put(&*store, "k", "1").await;
    put(&*store, "k", "2").await;
    let third = put(&*store, "k", "3").await;
    store.compact(third).await.unwrap();

    let mut watch = store.watch("", WatchFrom::After(first));
    let cause = GapCause::Compacted { oldest: third };
    assert_eq!(news(&mut watch).await, WatchEvent::Gap { after: first, cause });
    let (kvs, revision) = snapshot(&mut watch).await;
    assert_eq!((text(&kvs), revision), (vec![("k", "3")], third));
    let fourth = put(&*store, "k", "4").await;
    assert_eq!(changes(&mut watch).await, (fourth, vec![pair("k", "4")]));

    // The compacted revision itself is still known, so nothing is missing.
    let mut watch = store.watch("", WatchFrom::After(third));
    assert_eq!(changes(&mut watch).await, (fourth, vec![pair("k", "4")]));
}

pub async fn future_start_is_a_gap_and_a_snapshot(subject: &dyn ContractSubject) {
    let store = subject.store();
    let head = put(&*store, "k", "1").await;
    let later = Revision(head.0 + 1000);
    let mut watch = store.watch("", WatchFrom::After(later));
    assert_eq!(news(&mut watch).await, WatchEvent::Gap { after: later, cause: GapCause::Ahead { head } });
    let (kvs, revision) = snapshot(&mut watch).await;
    assert_eq!((text(&kvs), revision), (vec![("k", "1")], head));
}

pub async fn late_reader_misses_nothing(subject: &dyn ContractSubject) {
    let store = subject.store();
    let mut mirror = Mirror::new(&*store, "");
    let start = put(&*store, "k", "0").await;
    mirror.reach(start).await;
    let mut last = start;
    for n in 0..300 {
        last =
            commit(&*store, Txn::new().op(Op::put("k", n.to_string())).op(Op::put(format!("n/{}", n % 7), "1"))).await;
    }
    mirror.reach(last).await;
    assert_eq!(mirror.gaps, 0);
    assert_eq!(mirror.copy.into_values().collect::<Vec<_>>(), all(&*store, "").await);
}

pub async fn cancelled_wait_loses_nothing(subject: &dyn ContractSubject) {
    let store = subject.store();
    let start = put(&*store, "k", "start").await;
    let mut watch = store.watch("", WatchFrom::After(start));
    let mut seen = Vec::new();
    for n in 0..50 {
        let revision = put(&*store, "k", &n.to_string()).await;
        // Each wait may be cancelled at any point.
        for _ in 0..3 {
            tokio::select! {
                biased;
                event = watch.next() => seen.push(event.unwrap()),
                () = tokio::task::yield_now() => {}
            }
        }
        let _ = revision;
    }
    let last = put(&*store, "k", "last").await;
    while !matches!(seen.last(), Some(WatchEvent::Changes { revision, .. }) if *revision == last) {
        seen.push(watch.next().await.unwrap());
    }
    let changes = seen.iter().filter(|event| matches!(event, WatchEvent::Changes { .. })).count();
    assert_eq!(changes, 51);
}

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

    /// True if the copy has reached a revision.
    pub fn has_reached(&self, revision: Revision) -> bool {
        !self.in_snapshot && self.revision >= revision
    }

    /// Handles one event. After an error the next call continues.
    pub async fn step(&mut self) -> Result<(), StoreError> {
        let event = self.watch.next().await?;
        self.apply(event);
        Ok(())
    }

    fn apply(&mut self, event: WatchEvent) {
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
