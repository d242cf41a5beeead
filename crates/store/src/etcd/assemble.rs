//! Transactions out of what a watch says.
//!
//! An answer of etcd holds events of one or many revisions, in order. All events of one revision are in one answer: a
//! watcher that is up to date is told of each transaction when it ends, and one that catches up gets batches of at most
//! 1,000 whole revisions (`eventBatch` in etcd's `mvcc`). Such a batch can be huge, so we ask for fragments, and then
//! an answer may be cut anywhere, also within a revision; all pieces but the last are marked.

use etcd_client::proto::PbEvent;
use muster_core::txn::Revision;

use super::keys::{key, key_value};
use super::shared::revision;
use crate::watch::{Change, Event};

/// What has been heard of a revision that may go on in the next fragment.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    open: Option<(u64, Vec<Change>)>,
}

impl Assembly {
    /// Takes the events of an answer, and gives the transactions that are complete with them. Those up to `told` are
    /// known to the reader, and left out.
    pub(super) fn take(&mut self, events: Vec<PbEvent>, fragment: bool, told: u64) -> Vec<Event> {
        let mut complete = Vec::new();
        for (at, change) in events.into_iter().filter_map(change).filter(|(at, _)| *at > told) {
            match &mut self.open {
                Some((open, changes)) if *open == at => changes.push(change),
                _ => complete.extend(self.open.replace((at, vec![change])).map(said)),
            }
        }
        if !fragment {
            complete.extend(self.open.take().map(said));
        }
        complete
    }
}

fn said((revision, changes): (u64, Vec<Change>)) -> Event {
    Event::Changes { revision: Revision(revision), changes }
}

fn change(event: PbEvent) -> Option<(u64, Change)> {
    /// `Event.EventType` of etcd's protocol.
    const DELETE: i32 = 1;
    let kv = event.kv?;
    // Of a key that was deleted, this is the revision that deleted it.
    let at = revision(kv.mod_revision);
    let change =
        if event.r#type == DELETE { Change::Delete { key: key(kv.key)? } } else { Change::Put(key_value(kv)?) };
    Some((at, change))
}

#[cfg(test)]
mod tests {
    use etcd_client::proto::{PbEvent, PbKeyValue};

    use super::Assembly;
    use crate::watch::Event;

    fn put(key: &str, at: i64) -> PbEvent {
        let kv = PbKeyValue { key: key.into(), mod_revision: at, ..PbKeyValue::default() };
        PbEvent { kv: Some(kv), ..PbEvent::default() }
    }

    fn short(events: Vec<Event>) -> Vec<(u64, Vec<String>)> {
        let short = |event| match event {
            Event::Changes { revision, changes } => {
                (revision.0, changes.iter().map(|change| change.key().to_owned()).collect())
            }
            other @ (Event::Snapshot(_) | Event::SnapshotEnd { .. } | Event::Progress { .. } | Event::Gap { .. }) => {
                panic!("{other:?}")
            }
        };
        events.into_iter().map(short).collect()
    }

    #[test]
    fn many_revisions_in_one_answer_are_as_many_transactions() {
        let mut assembly = Assembly::default();
        let said = assembly.take(vec![put("a", 3), put("b", 3), put("a", 5)], false, 0);
        assert_eq!(short(said), [(3, vec!["a".to_owned(), "b".to_owned()]), (5, vec!["a".to_owned()])]);
    }

    #[test]
    fn a_transaction_that_was_cut_waits_for_the_rest() {
        let mut assembly = Assembly::default();
        assert_eq!(short(assembly.take(vec![put("a", 3), put("a", 4)], true, 0)), [(3, vec!["a".to_owned()])]);
        assert_eq!(short(assembly.take(vec![put("b", 4)], true, 3)), []);
        let said = assembly.take(vec![put("c", 4), put("a", 5)], false, 3);
        let four = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(short(said), [(4, four), (5, vec!["a".to_owned()])]);
    }

    #[test]
    fn what_was_told_is_not_told_again() {
        let mut assembly = Assembly::default();
        assert_eq!(short(assembly.take(vec![put("a", 3), put("a", 4)], false, 3)), [(4, vec!["a".to_owned()])]);
        assert_eq!(short(assembly.take(vec![put("a", 3)], false, 4)), []);
    }
}
