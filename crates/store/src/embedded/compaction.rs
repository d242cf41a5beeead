//! Forgetting history, so that the file does not grow with the age of the fleet. redb uses freed pages again.

use redb::ReadableTable;

use super::apply::Tables;
use super::fault::Fault;
use super::numbers::Numbers;
use super::options::Options;

/// How far the history may outgrow its bound before the excess is removed at once: removing neighbours together
/// rewrites each page once, removing them one by one rewrites it every time.
const SLACK: u64 = 512;

/// The revision to compact to now, if the history has outgrown its bounds.
pub(super) fn due(tables: &Tables<'_>, numbers: &Numbers, options: &Options) -> Result<Option<u64>, Fault> {
    let mut target = numbers.compacted;
    if numbers.head - numbers.compacted > options.keep_revisions.saturating_add(SLACK) {
        target = numbers.head - options.keep_revisions;
    }
    // An eighth of slack, for the same reason.
    if numbers.history_bytes > options.keep_bytes.saturating_add(options.keep_bytes / 8) {
        let mut left = numbers.history_bytes;
        for row in tables.history.range(numbers.compacted + 1..=numbers.head)? {
            let (revision, row) = row?;
            if left <= options.keep_bytes {
                break;
            }
            left -= row.value().len() as u64;
            target = target.max(revision.value());
        }
    }
    Ok((target > numbers.compacted).then_some(target))
}

/// Removes the history up to and including a revision: what is before it can be read no more.
pub(super) fn compact(tables: &mut Tables<'_>, numbers: &mut Numbers, to: u64) -> Result<(), Fault> {
    let mut removed = 0;
    tables.history.retain_in(..=to, |_, row| {
        removed += row.len() as u64;
        false
    })?;
    numbers.compacted = to;
    numbers.history_bytes = numbers.history_bytes.saturating_sub(removed);
    Ok(())
}
