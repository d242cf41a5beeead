//! Builds complete transactions from the events of an etcd watch.
//!
//! A response has events of one or many revisions, in order. All events of one revision are in one response: an
//! up-to-date watcher gets each transaction when it ends, and one that catches up gets batches of at most 1,000
//! complete revisions (`eventBatch` in etcd's `mvcc`). Such a batch can be huge, so watches request fragments. A
//! fragmented response may be cut within a revision; all fragments but the last are marked.

use etcd_client::proto::PbEvent;
use muster_core::txn::Revision;

use super::read::{key, key_value};
use super::request::revision;
use crate::watch::{WatchChange, WatchEvent};

/// Changes of a revision that may continue in the next fragment.
#[derive(Debug, Default)]
pub(super) struct EventAssembly {
    open: Option<(u64, Vec<WatchChange>)>,
}

impl EventAssembly {
    /// Adds the events of a response, and returns the transactions that are complete. Events up to the revision
    /// `delivered` are skipped.
    pub(super) fn add(&mut self, events: Vec<PbEvent>, fragment: bool, delivered: u64) -> Vec<WatchEvent> {
        let mut complete = Vec::new();
        for (at, change) in events.into_iter().filter_map(change).filter(|(at, _)| *at > delivered) {
            match &mut self.open {
                Some((open, changes)) if *open == at => changes.push(change),
                _ => complete.extend(self.open.replace((at, vec![change])).map(changes_event)),
            }
        }
        if !fragment {
            complete.extend(self.open.take().map(changes_event));
        }
        complete
    }
}

fn changes_event((revision, changes): (u64, Vec<WatchChange>)) -> WatchEvent {
    WatchEvent::Changes { revision: Revision(revision), changes }
}

fn change(event: PbEvent) -> Option<(u64, WatchChange)> {
    /// `WatchEvent.EventType` of etcd's protocol.
    const DELETE: i32 = 1;
    let kv = event.kv?;
    // For a delete this is the revision of the delete.
    let at = revision(kv.mod_revision);
    let change = if event.r#type == DELETE {
        WatchChange::Delete { key: key(kv.key)? }
    } else {
        WatchChange::Put(key_value(kv)?)
    };
    Some((at, change))
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::{PbEvent, PbKeyValue};

    use super::EventAssembly;
    use crate::watch::WatchEvent;

    fn put(key: &str, at: i64) -> PbEvent {
        let kv = PbKeyValue { key: key.into(), mod_revision: at, ..PbKeyValue::default() };
        PbEvent { kv: Some(kv), ..PbEvent::default() }
    }

    fn short(events: Vec<WatchEvent>) -> Vec<(u64, Vec<String>)> {
        let short = |event| match event {
            WatchEvent::Changes { revision, changes } => {
                (revision.0, changes.iter().map(|change| change.key().to_owned()).collect())
            }
            other @ (WatchEvent::Snapshot(_)
            | WatchEvent::SnapshotEnd { .. }
            | WatchEvent::Progress { .. }
            | WatchEvent::Gap { .. }) => {
                panic!("{other:?}")
            }
        };
        events.into_iter().map(short).collect()
    }

    #[test]
    fn each_revision_of_a_response_is_a_transaction() {
        let mut assembly = EventAssembly::default();
        let events = assembly.add(vec![put("a", 3), put("b", 3), put("a", 5)], false, 0);
        assert_eq!(short(events), [(3, vec!["a".to_owned(), "b".to_owned()]), (5, vec!["a".to_owned()])]);
    }

    #[test]
    fn fragmented_transaction_waits_for_the_rest() {
        let mut assembly = EventAssembly::default();
        assert_eq!(short(assembly.add(vec![put("a", 3), put("a", 4)], true, 0)), [(3, vec!["a".to_owned()])]);
        assert_eq!(short(assembly.add(vec![put("b", 4)], true, 3)), []);
        let events = assembly.add(vec![put("c", 4), put("a", 5)], false, 3);
        let four = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(short(events), [(4, four), (5, vec!["a".to_owned()])]);
    }

    #[test]
    fn delivered_events_are_skipped() {
        let mut assembly = EventAssembly::default();
        assert_eq!(short(assembly.add(vec![put("a", 3), put("a", 4)], false, 3)), [(4, vec!["a".to_owned()])]);
        assert_eq!(short(assembly.add(vec![put("a", 3)], false, 4)), []);
    }
}
