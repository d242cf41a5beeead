//! The rows of the file as bytes: small fixed headers, and values as they are.

use bytes::Bytes;
use muster_core::txn::{LeaseId, Revision};

use crate::store::KeyValue;
use crate::watch::Change;

/// A row that cannot be read: the file is damaged, or was written by something else.
#[derive(Debug, thiserror::Error)]
#[error("a row of {what} cannot be read")]
pub(super) struct BadRow {
    pub(super) what: &'static str,
}

/// What is known of a key: the row in `keys`, and the "before" half of a change in the history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) revision: u64,
    /// 0 is no lease: leases are counted from 1.
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
        let mut rest = Reader { rest: row, what: "keys" };
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

/// One change of a transaction, with both sides of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved<'a> {
    pub(super) key: &'a str,
    /// The record after it; none if it was deleted. Its revision is that of the row.
    pub(super) after: Option<Record<'a>>,
    /// The record before it; none if the key was not there.
    pub(super) before: Option<Record<'a>>,
}

impl Moved<'_> {
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

    pub(super) fn change(&self) -> Change {
        match self.after {
            Some(record) => Change::Put(record.key_value(self.key)),
            None => Change::Delete { key: self.key.to_owned() },
        }
    }
}

/// All changes of a row of the history, in the order of the transaction's operations.
pub(super) fn moves(row: &[u8]) -> impl Iterator<Item = Result<Moved<'_>, BadRow>> {
    let mut reader = Reader { rest: row, what: "history" };
    std::iter::from_fn(move || {
        if reader.rest.is_empty() {
            return None;
        }
        let moved = reader.moved();
        if moved.is_err() {
            reader.rest = &[];
        }
        Some(moved)
    })
}

fn append_bytes(row: &mut Vec<u8>, bytes: &[u8]) {
    // Keys and values are limited to a few KiB when they come in, far below what the length can say.
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    row.extend_from_slice(&len.to_le_bytes());
    row.extend_from_slice(bytes);
}

struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], BadRow> {
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
        self.take(len as usize)
    }

    fn record(&mut self) -> Result<Option<Record<'a>>, BadRow> {
        match self.array()? {
            [0] => Ok(None),
            [1] => Ok(Some(Record { revision: self.u64()?, lease: self.i64()?, value: self.bytes()? })),
            _ => Err(BadRow { what: self.what }),
        }
    }

    fn moved(&mut self) -> Result<Moved<'a>, BadRow> {
        let key = std::str::from_utf8(self.bytes()?).map_err(|_| BadRow { what: self.what })?;
        Ok(Moved { key, after: self.record()?, before: self.record()? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_row_of_the_history_reads_back_as_it_was_written() {
        let before = Record { revision: 3, lease: 0, value: b"old" };
        let after = Record { revision: 4, lease: 7, value: b"" };
        let mut row = Vec::new();
        Moved { key: "a/1", after: Some(after), before: Some(before) }.append_to(&mut row);
        Moved { key: "ÿ", after: None, before: Some(before) }.append_to(&mut row);

        let read: Vec<_> = moves(&row).map(Result::unwrap).collect();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].key, read[0].after.unwrap().lease, read[0].before.unwrap().value), ("a/1", 7, &b"old"[..]));
        assert_eq!((read[1].key, read[1].after.is_none(), read[1].before.unwrap().revision), ("ÿ", true, 3));
    }

    #[test]
    fn a_damaged_row_is_an_error_and_no_panic() {
        let mut row = Vec::new();
        Moved { key: "a/1", after: Some(Record { revision: 4, lease: 7, value: b"v" }), before: None }
            .append_to(&mut row);
        for cut in 1..row.len() {
            let last = moves(&row[..cut]).last().unwrap();
            assert!(last.is_err(), "cut at {cut}");
        }
        assert!(Record::decode(b"short").is_err());
    }
}
