//! Compaction of the history, so that the file does not grow with time. redb reuses freed pages.

use redb::ReadableTable;

use super::Options;
use super::apply::Tables;
use super::errors::Fault;
use super::format::StoreCounters;

/// Revisions over the limit before the excess is removed. Rows that are removed together rewrite each page once.
const SLACK: u64 = 512;

/// The revision to compact to, if the history exceeds its limits.
pub(super) fn due(tables: &Tables<'_>, counters: &StoreCounters, options: &Options) -> Result<Option<u64>, Fault> {
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

/// Removes the history up to and including a revision.
pub(super) fn compact(tables: &mut Tables<'_>, counters: &mut StoreCounters, to: u64) -> Result<(), Fault> {
    let mut removed = 0;
    tables.history.retain_in(..=to, |_, row| {
        removed += row.len() as u64;
        false
    })?;
    counters.compacted = to;
    counters.history_bytes = counters.history_bytes.saturating_sub(removed);
    Ok(())
}
