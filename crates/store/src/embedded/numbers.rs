//! The few numbers that say where the store stands. They are in the file, and change with the transactions.

use redb::{ReadableTable, StorageError};

/// Where the store stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    /// The last revision that was made.
    pub(super) head: u64,
    /// The oldest revision that can be read: the history holds the rows after it.
    pub(super) compacted: u64,
    /// Bytes of all rows of the history, so that it can be kept within bounds without reading it.
    pub(super) history_bytes: u64,
    /// The last lease that was granted. Never given out again: an old holder must not keep a new lease alive.
    pub(super) last_lease: u64,
    /// Counts the durable commits. After a commit that ended in an error this tells whether it happened.
    pub(super) group: u64,
}

const HEAD: &str = "revision";
const COMPACTED: &str = "compacted";
const HISTORY_BYTES: &str = "history_bytes";
const LAST_LEASE: &str = "last_lease";
const GROUP: &str = "group";

impl Numbers {
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

    /// Writes the numbers that differ from what the file holds.
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
