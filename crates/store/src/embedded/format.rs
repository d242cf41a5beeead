//! On-disk format: tables, counters and rows. Any change here needs a new [`FORMAT`].

use bytes::Bytes;
use muster_core::txn::{LeaseId, Revision};
use redb::{ReadableTable, StorageError, TableDefinition};

use crate::store::KeyValue;
use crate::watch::WatchChange;

/// Key → its record.
pub(super) const KEYS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("keys");

/// Revision → its changes.
pub(super) const HISTORY: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("history");

/// Lease → time to live in milliseconds.
pub(super) const LEASES: TableDefinition<'_, i64, u64> = TableDefinition::new("leases");

/// (lease, key) for each key with a lease.
pub(super) const LEASED: TableDefinition<'_, (i64, &str), ()> = TableDefinition::new("leased");

/// Counters, by name.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The format that this code reads and writes.
pub(super) const FORMAT: u64 = 1;

/// Counters of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreCounters {
    /// The latest revision.
    pub(super) head: u64,
    /// The oldest readable revision: the history has the rows after it.
    pub(super) compacted: u64,
    /// Bytes of the history. It limits the history without reading it.
    pub(super) history_bytes: u64,
    /// The last granted lease. Never reused: an old holder must not keep a new lease alive.
    pub(super) last_lease: u64,
    /// Number of durable commits. After a failed commit it shows whether the commit is in the file.
    pub(super) group: u64,
}

const HEAD: &str = "revision";
const COMPACTED: &str = "compacted";
const HISTORY_BYTES: &str = "history_bytes";
const LAST_LEASE: &str = "last_lease";
const GROUP: &str = "group";

impl StoreCounters {
    pub(super) fn read(meta: &impl ReadableTable<&'static str, u64>) -> Result<Self, StorageError> {
        let number = |name| Ok::<_, StorageError>(meta.get(name)?.map_or(0, |n| n.value()));
        Ok(Self {
            head: number(HEAD)?,
            compacted: number(COMPACTED)?,
            history_bytes: number(HISTORY_BYTES)?,
            last_lease: number(LAST_LEASE)?,
            group: number(GROUP)?,
        })
    }

    /// Writes the counters that have changed.
    pub(super) fn write(&self, was: &Self, meta: &mut redb::Table<'_, &'static str, u64>) -> Result<(), StorageError> {
        let all = [
            (HEAD, self.head, was.head),
            (COMPACTED, self.compacted, was.compacted),
            (HISTORY_BYTES, self.history_bytes, was.history_bytes),
            (LAST_LEASE, self.last_lease, was.last_lease),
            (GROUP, self.group, was.group),
        ];
        for (name, now, was) in all {
            if now != was {
                meta.insert(name, now)?;
            }
        }
        Ok(())
    }
}

/// A row that cannot be read: the file is corrupt.
#[derive(Debug, thiserror::Error)]
#[error("a row of {what} cannot be read")]
pub(super) struct BadRow {
    pub(super) what: &'static str,
}

/// State of a key: a row of `keys`, or one side of a change in the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) revision: u64,
    /// 0 means no lease: leases are counted from 1.
    pub(super) lease: i64,
    pub(super) value: &'a [u8],
}

const RECORD_HEADER: usize = 16;

impl<'a> Record<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut row = Vec::with_capacity(RECORD_HEADER + self.value.len());
        row.extend_from_slice(&self.revision.to_le_bytes());
        row.extend_from_slice(&self.lease.to_le_bytes());
        row.extend_from_slice(self.value);
        row
    }

    pub(super) fn decode(row: &'a [u8]) -> Result<Self, BadRow> {
        let mut rest = RowReader { rest: row, what: "keys" };
        Ok(Self { revision: rest.u64()?, lease: rest.i64()?, value: rest.rest })
    }

    pub(super) fn key_value(&self, key: &str) -> KeyValue {
        KeyValue {
            key: key.to_owned(),
            value: Bytes::copy_from_slice(self.value),
            revision: Revision(self.revision),
            lease: lease_id(self.lease),
        }
    }
}

pub(super) fn lease_id(lease: i64) -> Option<LeaseId> {
    (lease != 0).then_some(LeaseId(lease))
}

/// A change of one key in the history, with the states before and after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryEntry<'a> {
    pub(super) key: &'a str,
    /// None if the key was deleted. Its revision is that of the row.
    pub(super) after: Option<Record<'a>>,
    /// None if the key did not exist.
    pub(super) before: Option<Record<'a>>,
}

impl HistoryEntry<'_> {
    /// Appends this change to the row of its transaction.
    pub(super) fn append_to(&self, row: &mut Vec<u8>) {
        append_bytes(row, self.key.as_bytes());
        for side in [&self.after, &self.before] {
            match side {
                None => row.push(0),
                Some(record) => {
                    row.push(1);
                    row.extend_from_slice(&record.revision.to_le_bytes());
                    row.extend_from_slice(&record.lease.to_le_bytes());
                    append_bytes(row, record.value);
                }
            }
        }
    }

    pub(super) fn change(&self) -> WatchChange {
        match self.after {
            Some(record) => WatchChange::Put(record.key_value(self.key)),
            None => WatchChange::Delete { key: self.key.to_owned() },
        }
    }
}

/// The changes of a history row, in the order of the transaction's operations.
pub(super) fn history_entries(row: &[u8]) -> impl Iterator<Item = Result<HistoryEntry<'_>, BadRow>> {
    let mut reader = RowReader { rest: row, what: "history" };
    std::iter::from_fn(move || {
        if reader.rest.is_empty() {
            return None;
        }
        let entry = reader.entry();
        if entry.is_err() {
            reader.rest = &[];
        }
        Some(entry)
    })
}

fn append_bytes(row: &mut Vec<u8>, bytes: &[u8]) {
    // Keys and values are limited to a few KiB, far below the range of the length.
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    row.extend_from_slice(&len.to_le_bytes());
    row.extend_from_slice(bytes);
}

struct RowReader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> RowReader<'a> {
    fn next_bytes(&mut self, len: usize) -> Result<&'a [u8], BadRow> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(BadRow { what: self.what })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadRow> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(BadRow { what: self.what })?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u64(&mut self) -> Result<u64, BadRow> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64, BadRow> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    fn bytes(&mut self) -> Result<&'a [u8], BadRow> {
        let len = u32::from_le_bytes(self.array()?);
        self.next_bytes(len as usize)
    }

    fn record(&mut self) -> Result<Option<Record<'a>>, BadRow> {
        match self.array()? {
            [0] => Ok(None),
            [1] => Ok(Some(Record { revision: self.u64()?, lease: self.i64()?, value: self.bytes()? })),
            _ => Err(BadRow { what: self.what }),
        }
    }

    fn entry(&mut self) -> Result<HistoryEntry<'a>, BadRow> {
        let key = std::str::from_utf8(self.bytes()?).map_err(|_| BadRow { what: self.what })?;
        Ok(HistoryEntry { key, after: self.record()?, before: self.record()? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn history_row_reads_back_as_written() {
        let before = Record { revision: 3, lease: 0, value: b"old" };
        let after = Record { revision: 4, lease: 7, value: b"" };
        let mut row = Vec::new();
        HistoryEntry { key: "a/1", after: Some(after), before: Some(before) }.append_to(&mut row);
        HistoryEntry { key: "ÿ", after: None, before: Some(before) }.append_to(&mut row);

        let read: Vec<_> = history_entries(&row).map(Result::unwrap).collect();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].key, read[0].after.unwrap().lease, read[0].before.unwrap().value), ("a/1", 7, &b"old"[..]));
        assert_eq!((read[1].key, read[1].after.is_none(), read[1].before.unwrap().revision), ("ÿ", true, 3));
    }

    #[test]
    fn truncated_row_is_an_error() {
        let mut row = Vec::new();
        HistoryEntry { key: "a/1", after: Some(Record { revision: 4, lease: 7, value: b"v" }), before: None }
            .append_to(&mut row);
        for cut in 1..row.len() {
            let last = history_entries(&row[..cut]).last().unwrap();
            assert!(last.is_err(), "cut at {cut}");
        }
        assert!(Record::decode(b"short").is_err());
    }
}
