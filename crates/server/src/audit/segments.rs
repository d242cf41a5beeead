//! Segments of the audit: old records, moved from the store into a blob, one line each.
//!
//! The key of a segment is committed before its records are deleted. Readers leave out records that are in a segment, so a
//! server that is killed in between changes nothing, and the next one deletes them.

use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use muster_core::audit::{self, AuditRecord, ChainCheck, SegmentRecord};
use muster_core::keys::ServerKey;
use muster_core::txn::{Guard, Op, Txn};
use muster_store::{CommitOutcome, StoreError};
use thiserror::Error;

use super::AuditLog;
use crate::blobs::Blobs;
use crate::transactions::MAX_OPS;

/// Records of a segment. Twice as many are in the store at most, about one megabyte.
pub(crate) const SEGMENT: usize = 1_000;

/// Error: records cannot be moved into a segment now. They stay in the store.
#[derive(Debug, Error)]
enum SegmentError {
    #[error("the segment cannot be written")]
    Blob(#[source] io::Error),
    #[error("the segment cannot be recorded")]
    Store(#[from] StoreError),
    #[error("the segment cannot be encoded")]
    Encode(#[from] serde_json::Error),
    #[error("record {0} was changed: `muster audit verify` shows the defects")]
    Changed(u64),
}

impl AuditLog {
    /// Moves records into segments as they become too many, forever.
    pub(crate) async fn run(&self, blobs: &Arc<Blobs>) {
        loop {
            let appended = self.appended.notified();
            if let Err(error) = self.move_old_records(blobs).await {
                let error = crate::api::chain(&error);
                tracing::warn!(error, "records of the audit stay in the store");
            }
            appended.await;
        }
    }

    async fn move_old_records(&self, blobs: &Arc<Blobs>) -> Result<(), SegmentError> {
        let leftovers: Vec<u64> = self.view.server_records().sealed_leftovers().collect();
        let key = |seq: &u64| ServerKey::AuditRecord { seq: *seq }.text();
        for part in leftovers.chunks(MAX_OPS) {
            self.store.commit(Txn { guards: Vec::new(), ops: part.iter().map(key).map(Op::delete).collect() }).await?;
        }
        let lines: Vec<(u64, Arc<str>)> = {
            let records = self.view.server_records();
            let open = records.open_audit().count();
            let taken = if open >= 2 * SEGMENT { SEGMENT } else { 0 };
            records.open_audit().take(taken).map(|(seq, line)| (seq, line.clone())).collect()
        };
        let (Some((first, _)), Some((last, line))) = (lines.first(), lines.last()) else { return Ok(()) };
        let (record, hash) = audit::open(line).map_err(|_| SegmentError::Changed(*last))?;
        let text: String = lines.iter().flat_map(|(_, line)| [line, "\n"]).collect();
        let (kept, blobs) = (Blobs::digest(text.as_bytes()), blobs.clone());
        let digest = kept.clone();
        let written = tokio::task::spawn_blocking(move || blobs.keep_durably([(kept.as_str(), text.as_bytes())])).await;
        written.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(SegmentError::Blob)?;
        let segment = SegmentRecord { first: *first, last: *last, until: record.at, digest, hash };
        let key = ServerKey::AuditSegment { first: *first }.text();
        let txn = Txn::new().guard(Guard::Absent { key: key.clone() }).op(Op::put_json(key, &segment)?);
        if let CommitOutcome::Committed { .. } = self.store.commit(txn).await? {
            tracing::info!(segment.first, segment.last, "records of the audit were moved into a segment");
        }
        // The records are deleted when the view shows the segment, at the next append.
        Ok(())
    }
}

/// Lines of a segment, with their numbers; none if the blob is missing or damaged.
pub(crate) fn read(blobs: &Blobs, segment: &SegmentRecord) -> Option<Vec<String>> {
    let bytes = blobs.get(&segment.digest)?;
    let text = String::from_utf8(bytes).ok()?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let expected = segment.last.checked_sub(segment.first)? + 1;
    (lines.len() as u64 == expected).then_some(lines)
}

/// The audit at one moment: its segments, and the lines that are in none.
#[derive(Clone, Debug)]
pub(crate) struct AuditSnapshot {
    pub(crate) segments: Vec<SegmentRecord>,
    pub(crate) open: Vec<(u64, Arc<str>)>,
}

/// Records to select.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditSelection {
    /// Only records after this number.
    pub(crate) after: u64,
    pub(crate) since: Option<Timestamp>,
    pub(crate) limit: usize,
}

impl AuditSnapshot {
    /// Records in their order: the first ones after a number, or else the newest ones. Blocks.
    ///
    /// Returns whether a segment could not be read.
    pub(crate) fn select(
        &self,
        blobs: &Blobs,
        selection: &AuditSelection,
        is_wanted: impl Fn(&AuditRecord) -> bool,
    ) -> (Vec<AuditRecord>, bool) {
        let AuditSelection { after, since, limit } = selection;
        let is_recent = |until: Timestamp| since.is_none_or(|since| until >= since);
        let mut damaged = false;
        let mut found: Vec<AuditRecord> = Vec::new();
        let mut take = |lines: &mut dyn Iterator<Item = &str>, damaged: &mut bool| {
            for line in lines {
                match audit::open(line) {
                    Ok((record, _)) if record.seq > *after && is_recent(record.at) && is_wanted(&record) => {
                        found.push(record);
                    }
                    Ok(_) => {}
                    Err(_) => *damaged = true,
                }
                if found.len() >= *limit {
                    return true;
                }
            }
            false
        };
        let segments: Vec<&SegmentRecord> =
            self.segments.iter().filter(|segment| segment.last > *after && is_recent(segment.until)).collect();
        let mut lines_of = |segment: &SegmentRecord| {
            let lines = read(blobs, segment);
            damaged |= lines.is_none();
            lines.unwrap_or_default()
        };
        let mut changed = false;
        if *after > 0 {
            let full = segments.iter().any(|segment| {
                let lines = lines_of(segment);
                take(&mut lines.iter().map(String::as_str), &mut changed)
            });
            if !full {
                take(&mut self.open.iter().map(|(_, line)| line.as_ref()), &mut changed);
            }
        } else {
            let full = take(&mut self.open.iter().rev().map(|(_, line)| line.as_ref()), &mut changed);
            if !full {
                segments.iter().rev().any(|segment| {
                    let lines = lines_of(segment);
                    take(&mut lines.iter().rev().map(String::as_str), &mut changed)
                });
            }
            found.reverse();
        }
        (found, damaged || changed)
    }

    /// Checks all records, and returns whether one of them has the expected hash. Blocks.
    pub(crate) fn verify(&self, blobs: &Blobs, expected: Option<&str>) -> (ChainCheck, bool) {
        let mut check = ChainCheck::default();
        let mut found = expected.is_none();
        let mut add = |check: &mut ChainCheck, seq: u64, line: &str| {
            check.add(seq, line);
            found |= check.last().1 == expected;
        };
        for segment in &self.segments {
            match read(blobs, segment) {
                Some(lines) => (segment.first..).zip(&lines).for_each(|(seq, line)| add(&mut check, seq, line)),
                None => check.lost_segment(segment),
            }
        }
        self.open.iter().for_each(|(seq, line)| add(&mut check, *seq, line));
        (check, found)
    }
}
