//! Applies requests to the tables of an open write transaction, and compacts the history.

use muster_core::txn::{Guard, LeaseId, Op, Revision};
use redb::{ReadableTable, Table, WriteTransaction};

use crate::store::KeyValue;
use crate::watch::WatchChange;

use super::EmbeddedOptions;
use super::file::FileFault;
use super::format::{HISTORY, HistoryEntry, KEYS, LEASED, LEASES, META, Record, StoreCounters, lease_id};

/// All tables, opened for writing. They show the changes of earlier requests of the same group.
pub(super) struct Tables<'t> {
    pub(super) keys: Table<'t, &'static str, &'static [u8]>,
    pub(super) history: Table<'t, u64, &'static [u8]>,
    pub(super) leases: Table<'t, i64, u64>,
    pub(super) leased: Table<'t, (i64, &'static str), ()>,
    pub(super) meta: Table<'t, &'static str, u64>,
}

impl<'t> Tables<'t> {
    pub(super) fn open(txn: &'t WriteTransaction) -> Result<Self, FileFault> {
        Ok(Self {
            keys: txn.open_table(KEYS)?,
            history: txn.open_table(HISTORY)?,
            leases: txn.open_table(LEASES)?,
            leased: txn.open_table(LEASED)?,
            meta: txn.open_table(META)?,
        })
    }

    /// Keys whose guards do not hold.
    pub(super) fn failed(&self, guards: &[Guard]) -> Result<Vec<String>, FileFault> {
        let mut failed = Vec::new();
        for guard in guards {
            let holds = match guard {
                Guard::Absent { key } => self.revision_of(key)?.is_none(),
                Guard::Unchanged { key, since } => self.revision_of(key)? == Some(since.0),
                Guard::NoneNewer { prefix, than } => !self.any_newer(prefix, *than)?,
            };
            if !holds {
                failed.push(guard.key().to_owned());
            }
        }
        Ok(failed)
    }

    fn revision_of(&self, key: &str) -> Result<Option<u64>, FileFault> {
        let row = self.keys.get(key)?;
        Ok(row.map(|row| Record::decode(row.value()).map(|record| record.revision)).transpose()?)
    }

    fn any_newer(&self, prefix: &str, than: Revision) -> Result<bool, FileFault> {
        for row in self.keys.range(prefix..)? {
            let (key, row) = row?;
            if !key.value().starts_with(prefix) {
                break;
            }
            if Record::decode(row.value())?.revision > than.0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The first lease of the operations that does not exist.
    pub(super) fn ended_lease(&self, ops: &[Op]) -> Result<Option<LeaseId>, FileFault> {
        for op in ops {
            if let Op::Put { lease: Some(lease), .. } = op
                && self.leases.get(lease.0)?.is_none()
            {
                return Ok(Some(*lease));
            }
        }
        Ok(None)
    }

    /// Applies the operations as one revision. Without a change no row is written.
    pub(super) fn apply(&mut self, ops: Vec<Op>, revision: u64) -> Result<AppliedOps, FileFault> {
        let mut applied = AppliedOps { changes: Vec::with_capacity(ops.len()), row_bytes: 0 };
        let mut row = Vec::new();
        for op in ops {
            match op {
                Op::Put { key, value, lease } => {
                    self.put(&key, &value, lease, revision, &mut row)?;
                    let revision = Revision(revision);
                    applied.changes.push(WatchChange::Put(KeyValue { key, value: value.into(), revision, lease }));
                }
                Op::Delete { key } => {
                    if self.delete(&key, &mut row)? {
                        applied.changes.push(WatchChange::Delete { key });
                    }
                }
            }
        }
        if !applied.changes.is_empty() {
            self.history.insert(revision, row.as_slice())?;
            applied.row_bytes = row.len() as u64;
        }
        Ok(applied)
    }

    fn put(
        &mut self,
        key: &str,
        value: &[u8],
        lease: Option<LeaseId>,
        revision: u64,
        row: &mut Vec<u8>,
    ) -> Result<(), FileFault> {
        let after = Record { revision, lease: lease.map_or(0, |lease| lease.0), value };
        let was = self.keys.insert(key, after.encode().as_slice())?;
        let before = was.as_ref().map(|was| Record::decode(was.value())).transpose()?;
        HistoryEntry { key, after: Some(after), before }.append_to(row);

        let left = before.map_or(0, |before| before.lease);
        if left != after.lease {
            drop(was);
            self.leave(left, key)?;
            if after.lease != 0 {
                self.leased.insert((after.lease, key), ())?;
            }
        }
        Ok(())
    }

    fn delete(&mut self, key: &str, row: &mut Vec<u8>) -> Result<bool, FileFault> {
        let Some(was) = self.keys.remove(key)? else { return Ok(false) };
        let before = Record::decode(was.value())?;
        HistoryEntry { key, after: None, before: Some(before) }.append_to(row);
        let left = before.lease;
        drop(was);
        self.leave(left, key)?;
        Ok(true)
    }

    fn leave(&mut self, lease: i64, key: &str) -> Result<(), FileFault> {
        if lease_id(lease).is_some() {
            self.leased.remove((lease, key))?;
        }
        Ok(())
    }

    /// Ends a lease and returns the operations that delete its keys. None if there is no such lease.
    pub(super) fn end_lease(&mut self, lease: i64) -> Result<Option<Vec<Op>>, FileFault> {
        if self.leases.remove(lease)?.is_none() {
            return Ok(None);
        }
        let mut ops = Vec::new();
        for row in self.leased.range((lease, "")..)? {
            let (row, _) = row?;
            let (of, key) = row.value();
            if of != lease {
                break;
            }
            ops.push(Op::delete(key));
        }
        Ok(Some(ops))
    }
}

/// Changes of an applied transaction.
pub(super) struct AppliedOps {
    pub(super) changes: Vec<WatchChange>,
    pub(super) row_bytes: u64,
}

/// Revisions over the limit before the excess is removed. Rows that are removed together rewrite each page once.
const SLACK: u64 = 512;

/// The revision to compact to, if the history exceeds its limits.
pub(super) fn compaction_due(
    tables: &Tables<'_>,
    counters: &StoreCounters,
    options: &EmbeddedOptions,
) -> Result<Option<u64>, FileFault> {
    let mut target = counters.compacted;
    if counters.head - counters.compacted > options.keep_revisions.saturating_add(SLACK) {
        target = counters.head - options.keep_revisions;
    }
    // One eighth of slack, for the same reason.
    if counters.history_bytes > options.keep_bytes.saturating_add(options.keep_bytes / 8) {
        let mut left = counters.history_bytes;
        for row in tables.history.range(counters.compacted + 1..=counters.head)? {
            let (revision, row) = row?;
            if left <= options.keep_bytes {
                break;
            }
            left -= row.value().len() as u64;
            target = target.max(revision.value());
        }
    }
    Ok((target > counters.compacted).then_some(target))
}

/// Removes the history up to and including a revision, so that the file does not grow with time. redb reuses freed pages.
pub(super) fn compact(tables: &mut Tables<'_>, counters: &mut StoreCounters, to: u64) -> Result<(), FileFault> {
    let mut removed = 0;
    tables.history.retain_in(..=to, |_, row| {
        removed += row.len() as u64;
        false
    })?;
    counters.compacted = to;
    counters.history_bytes = counters.history_bytes.saturating_sub(removed);
    Ok(())
}
