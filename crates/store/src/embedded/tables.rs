//! The tables of the file. Changing any of this, or the rows in `record`, needs a new [`FORMAT`].
//!
//! History is an undo log: its row for a revision holds, for each change, the new value (for watches that start in
//! the past) and the one before it (for reads in the past, which start at the present and undo). Keeping every
//! version of a key under (key, revision) instead would double the tree operations of every write, which are what
//! a transaction costs, for the sake of reads that are rare.

use redb::TableDefinition;

/// Key → its present record.
pub(super) const KEYS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("keys");

/// Revision → what it changed.
pub(super) const HISTORY: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("history");

/// Lease → its time to live in milliseconds.
pub(super) const LEASES: TableDefinition<'_, i64, u64> = TableDefinition::new("leases");

/// (lease, key) for each key that goes with a lease.
pub(super) const LEASED: TableDefinition<'_, (i64, &str), ()> = TableDefinition::new("leased");

/// The numbers of [`Numbers`](super::numbers::Numbers), by name.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The format that this code reads and writes.
pub(super) const FORMAT: u64 = 1;
