//! Reads of the present, of the past (by undoing later changes), and of the history for watches.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use muster_core::txn::Revision;
use redb::ReadTransaction;

use super::file::FileFault;
use super::format::{BadRow, HISTORY, KEYS, META, Record, StoreCounters, history_entries};
use super::watch::CommittedTxn;
use crate::store::{KeyValue, StoreError};

pub(super) fn get(txn: &ReadTransaction, key: &str) -> Result<Option<KeyValue>, FileFault> {
    let keys = txn.open_table(KEYS)?;
    let row = keys.get(key)?;
    row.map(|row| Ok(Record::decode(row.value())?.key_value(key))).transpose()
}

pub(super) fn counters(txn: &ReadTransaction) -> Result<StoreCounters, FileFault> {
    Ok(StoreCounters::read(&txn.open_table(META)?)?)
}

/// Some keys of a prefix at one revision.
#[derive(Debug)]
pub(super) struct EmbeddedPage {
    pub(super) kvs: Vec<KeyValue>,
    pub(super) revision: u64,
    /// True if more keys follow.
    pub(super) more: bool,
}

/// Keys to read.
#[derive(Clone, Debug)]
pub(super) struct PageRequest {
    pub(super) prefix: String,
    /// The revision to read at; the latest if none.
    pub(super) at: Option<u64>,
    /// Only keys after this one.
    pub(super) after: Option<String>,
    pub(super) limit: usize,
}

pub(super) fn page(txn: &ReadTransaction, request: &PageRequest) -> Result<EmbeddedPage, FileFault> {
    let counters = counters(txn)?;
    let revision = request.at.unwrap_or(counters.head);
    if revision > counters.head {
        return Err(StoreError::Ahead { requested: Revision(revision), head: Revision(counters.head) }.into());
    }
    if revision < counters.compacted {
        return Err(
            StoreError::Compacted { requested: Revision(revision), oldest: Revision(counters.compacted) }.into()
        );
    }
    let mut undone = undo(txn, &request.prefix, revision)?;

    let start = match &request.after {
        Some(after) => Bound::Excluded(after.as_str()),
        None => Bound::Included(request.prefix.as_str()),
    };
    if let Some(after) = &request.after {
        undone = undone.split_off(after);
        undone.remove(after);
    }

    // Both sides are sorted: the smaller key comes next, and an undone key replaces the present one.
    let keys = txn.open_table(KEYS)?;
    let mut present = keys.range::<&str>((start, Bound::Unbounded))?;
    let mut undone: VecDeque<_> = undone.into_iter().collect();
    let mut kvs = Vec::new();
    let mut next = present.next().transpose()?;
    loop {
        let live = next.as_ref().map(|(key, _)| key.value()).filter(|key| key.starts_with(&request.prefix));
        let found = match (live, undone.front()) {
            (None, None) => return Ok(EmbeddedPage { kvs, revision, more: false }),
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
            // The guard above takes every live key before the first undone one.
            (Some(_), None) => None,
        };
        if let Some(kv) = found {
            if kvs.len() == request.limit {
                return Ok(EmbeddedPage { kvs, revision, more: true });
            }
            kvs.push(kv);
        }
    }
}

/// Values at a revision of the keys that changed later: the oldest later change has the value before it.
fn undo(txn: &ReadTransaction, prefix: &str, revision: u64) -> Result<BTreeMap<String, Option<KeyValue>>, FileFault> {
    let mut undone = BTreeMap::new();
    let history = txn.open_table(HISTORY)?;
    for row in history.range(revision + 1..)? {
        let (_, row) = row?;
        for entry in history_entries(row.value()) {
            let entry = entry?;
            if entry.key.starts_with(prefix) && !undone.contains_key(entry.key) {
                undone.insert(entry.key.to_owned(), entry.before.map(|before| before.key_value(entry.key)));
            }
        }
    }
    Ok(undone)
}

/// Limits of one batch of the history, which bound the memory of a slow watch.
const BATCH_COMMITS: usize = 256;
const BATCH_BYTES: usize = 1024 * 1024;

/// Transactions from a revision on, at most one batch.
pub(super) fn history(txn: &ReadTransaction, next: u64, prefix: &str) -> Result<Vec<CommittedTxn>, FileFault> {
    let counters = counters(txn)?;
    if next <= counters.compacted {
        let (requested, oldest) = (Revision(next.saturating_sub(1)), Revision(counters.compacted));
        return Err(StoreError::Compacted { requested, oldest }.into());
    }
    let history = txn.open_table(HISTORY)?;
    let (mut commits, mut bytes) = (Vec::new(), 0);
    for (expected, row) in (next..).zip(history.range(next..)?) {
        let (revision, row) = row?;
        if revision.value() != expected {
            return Err(BadRow { what: "history" }.into());
        }
        bytes += row.value().len();
        if commits.len() == BATCH_COMMITS || (bytes > BATCH_BYTES && !commits.is_empty()) {
            break;
        }
        let mut changes = Vec::new();
        for entry in history_entries(row.value()) {
            let entry = entry?;
            if entry.key.starts_with(prefix) {
                changes.push(entry.change());
            }
        }
        commits.push(CommittedTxn { revision: revision.value(), changes });
    }
    Ok(commits)
}
