//! Reading: the present, the past by undoing, and the history for watches.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use muster_core::txn::Revision;
use redb::ReadTransaction;

use super::fault::Fault;
use super::numbers::Numbers;
use super::recent::Commit;
use super::record::{BadRow, Record, moves};
use super::tables::{HISTORY, KEYS, META};
use crate::error::StoreError;
use crate::store::KeyValue;

pub(super) fn get(txn: &ReadTransaction, key: &str) -> Result<Option<KeyValue>, Fault> {
    let keys = txn.open_table(KEYS)?;
    let row = keys.get(key)?;
    row.map(|row| Ok(Record::decode(row.value())?.key_value(key))).transpose()
}

pub(super) fn numbers(txn: &ReadTransaction) -> Result<Numbers, Fault> {
    Ok(Numbers::read(&txn.open_table(META)?)?)
}

/// Some keys of a prefix at one revision.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) kvs: Vec<KeyValue>,
    pub(super) revision: u64,
    /// Whether there are more keys after the last of these.
    pub(super) more: bool,
}

/// Which keys to read.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) prefix: String,
    /// The revision to read at; the latest if none.
    pub(super) at: Option<u64>,
    /// Only keys after this one.
    pub(super) after: Option<String>,
    pub(super) limit: usize,
}

pub(super) fn page(txn: &ReadTransaction, wanted: &Wanted) -> Result<Page, Fault> {
    let numbers = numbers(txn)?;
    let revision = wanted.at.unwrap_or(numbers.head);
    if revision > numbers.head {
        return Err(StoreError::Ahead { asked: Revision(revision), head: Revision(numbers.head) }.into());
    }
    if revision < numbers.compacted {
        return Err(StoreError::Compacted { asked: Revision(revision), oldest: Revision(numbers.compacted) }.into());
    }
    let mut undone = undo(txn, &wanted.prefix, revision)?;

    let start = match &wanted.after {
        Some(after) => Bound::Excluded(after.as_str()),
        None => Bound::Included(wanted.prefix.as_str()),
    };
    if let Some(after) = &wanted.after {
        undone = undone.split_off(after);
        undone.remove(after);
    }

    // Both sides are in order: at each step the smaller key comes next, and what was undone wins over the present.
    let keys = txn.open_table(KEYS)?;
    let mut present = keys.range::<&str>((start, Bound::Unbounded))?;
    let mut undone: VecDeque<_> = undone.into_iter().collect();
    let mut kvs = Vec::new();
    let mut next = present.next().transpose()?;
    loop {
        let live = next.as_ref().map(|(key, _)| key.value()).filter(|key| key.starts_with(&wanted.prefix));
        let found = match (live, undone.front()) {
            (None, None) => return Ok(Page { kvs, revision, more: false }),
            (Some(key), before) if before.is_none_or(|(undone, _)| key < undone.as_str()) => {
                let row = next.as_ref().map(|(_, row)| Record::decode(row.value())).transpose()?;
                let found = row.map(|record| record.key_value(key));
                next = present.next().transpose()?;
                found
            }
            (live, Some((undone_key, _))) => {
                if live == Some(undone_key.as_str()) {
                    next = present.next().transpose()?;
                }
                undone.pop_front().and_then(|(_, before)| before)
            }
            // The guard above takes every live key that nothing was undone before.
            (Some(_), None) => None,
        };
        if let Some(kv) = found {
            if kvs.len() == wanted.limit {
                return Ok(Page { kvs, revision, more: true });
            }
            kvs.push(kv);
        }
    }
}

/// What the keys that changed after a revision were at it: the oldest change after it knows what was before.
fn undo(txn: &ReadTransaction, prefix: &str, revision: u64) -> Result<BTreeMap<String, Option<KeyValue>>, Fault> {
    let mut undone = BTreeMap::new();
    let history = txn.open_table(HISTORY)?;
    for row in history.range(revision + 1..)? {
        let (_, row) = row?;
        for moved in moves(row.value()) {
            let moved = moved?;
            if moved.key.starts_with(prefix) && !undone.contains_key(moved.key) {
                undone.insert(moved.key.to_owned(), moved.before.map(|before| before.key_value(moved.key)));
            }
        }
    }
    Ok(undone)
}

/// A stretch of the history is read at once up to these bounds: what a watch that lags holds in memory.
const STRETCH_COMMITS: usize = 256;
const STRETCH_BYTES: usize = 1024 * 1024;

/// The transactions from a revision on, as far as they fit into one stretch.
pub(super) fn stretch(txn: &ReadTransaction, next: u64, prefix: &str) -> Result<Vec<Commit>, Fault> {
    let numbers = numbers(txn)?;
    if next <= numbers.compacted {
        let (asked, oldest) = (Revision(next.saturating_sub(1)), Revision(numbers.compacted));
        return Err(StoreError::Compacted { asked, oldest }.into());
    }
    let history = txn.open_table(HISTORY)?;
    let (mut commits, mut bytes) = (Vec::new(), 0);
    for (expected, row) in (next..).zip(history.range(next..)?) {
        let (revision, row) = row?;
        if revision.value() != expected {
            return Err(BadRow { what: "history" }.into());
        }
        bytes += row.value().len();
        if commits.len() == STRETCH_COMMITS || (bytes > STRETCH_BYTES && !commits.is_empty()) {
            break;
        }
        let mut changes = Vec::new();
        for moved in moves(row.value()) {
            let moved = moved?;
            if moved.key.starts_with(prefix) {
                changes.push(moved.change());
            }
        }
        commits.push(Commit { revision: revision.value(), changes });
    }
    Ok(commits)
}
