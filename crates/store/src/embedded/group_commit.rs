//! Group commit: many requests share one durable commit and its fsync. Each has its own revision and reply.

use std::time::Duration;

use muster_core::txn::{LeaseId, Op, Revision, Txn};
use redb::Database;

use super::apply::Tables;
use super::file::FileFault;
use super::format::StoreCounters;
use super::watch::CommittedTxn;
use super::writer::WriteRequest;
use super::{EmbeddedOptions, apply};
use crate::store::{CommitOutcome, Lease, StoreError};

/// A durable group, ready to publish.
#[derive(Debug)]
pub(super) struct CommitGroup {
    pub(super) counters: StoreCounters,
    pub(super) commits: Vec<CommittedTxn>,
    pub(super) granted: Vec<Lease>,
    pub(super) ended: Vec<i64>,
    pub(super) conflicts: u64,
    /// True if anything was written. Requests without changes cost no fsync.
    pub(super) written: bool,
}

/// A failed group.
#[derive(Debug)]
pub(super) enum GroupError {
    /// Failed before its commit: certainly rolled back.
    RolledBack(FileFault),
    /// Failed during the commit: only the file knows whether it is there.
    Unknown { fault: FileFault, group: Box<CommitGroup> },
}

impl<E: Into<FileFault>> From<E> for GroupError {
    fn from(error: E) -> Self {
        GroupError::RolledBack(error.into())
    }
}

/// Applies the requests in order and commits them together. Replies are prepared, and sent later.
pub(super) fn write(
    database: &Database,
    counters: StoreCounters,
    options: &EmbeddedOptions,
    requests: &mut [WriteRequest],
) -> Result<CommitGroup, GroupError> {
    let txn = database.begin_write()?;
    let mut group =
        CommitGroup { counters, commits: vec![], granted: vec![], ended: vec![], conflicts: 0, written: false };
    {
        let mut tables = Tables::open(&txn)?;
        for request in requests {
            group.stage(&mut tables, request)?;
        }
        if group.written {
            if let Some(to) = apply::compaction_due(&tables, &group.counters, options)? {
                apply::compact(&mut tables, &mut group.counters, to)?;
            }
            group.counters.group += 1;
            group.counters.write(&counters, &mut tables.meta)?;
        }
    }
    if !group.written {
        txn.abort()?;
        return Ok(group);
    }
    match txn.commit() {
        Ok(()) => Ok(group),
        Err(error) => Err(GroupError::Unknown { fault: error.into(), group: Box::new(group) }),
    }
}

impl CommitGroup {
    fn stage(&mut self, tables: &mut Tables<'_>, request: &mut WriteRequest) -> Result<(), FileFault> {
        match request {
            WriteRequest::Commit { txn, reply } => {
                let answer = self.commit(tables, std::mem::take(txn))?;
                reply.prepare(answer);
            }
            WriteRequest::Grant { ttl, reply } => {
                let lease = self.grant(tables, *ttl)?;
                reply.prepare(Ok(lease));
            }
            WriteRequest::Revoke { lease, reply } => {
                let answer = self.revoke(tables, *lease)?;
                reply.prepare(answer);
            }
            WriteRequest::Compact { revision, reply } => {
                let answer = self.compact(tables, *revision)?;
                reply.prepare(answer);
            }
            // They have run before this group is written.
            WriteRequest::Verify { .. } | WriteRequest::Recover { .. } => {}
        }
        Ok(())
    }

    fn commit(&mut self, tables: &mut Tables<'_>, txn: Txn) -> Result<Result<CommitOutcome, StoreError>, FileFault> {
        let failed = tables.failed(&txn.guards)?;
        if !failed.is_empty() {
            self.conflicts += 1;
            return Ok(Ok(CommitOutcome::Conflict { revision: Revision(self.counters.head), failed }));
        }
        if let Some(lease) = tables.ended_lease(&txn.ops)? {
            return Ok(Err(StoreError::LeaseEnded { lease }));
        }
        self.apply(tables, txn.ops)?;
        Ok(Ok(CommitOutcome::Committed { revision: Revision(self.counters.head) }))
    }

    fn apply(&mut self, tables: &mut Tables<'_>, ops: Vec<Op>) -> Result<(), FileFault> {
        let revision = self.counters.head + 1;
        let applied = tables.apply(ops, revision)?;
        if !applied.changes.is_empty() {
            self.counters.head = revision;
            self.counters.history_bytes += applied.row_bytes;
            self.commits.push(CommittedTxn { revision, changes: applied.changes });
            self.written = true;
        }
        Ok(())
    }

    fn grant(&mut self, tables: &mut Tables<'_>, ttl: Duration) -> Result<Lease, FileFault> {
        self.counters.last_lease += 1;
        // Incremented with each lease: it never leaves the range.
        let id = i64::try_from(self.counters.last_lease).unwrap_or(i64::MAX);
        tables.leases.insert(id, u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))?;
        self.written = true;
        let lease = Lease { id: LeaseId(id), ttl };
        self.granted.push(lease);
        Ok(lease)
    }

    fn revoke(&mut self, tables: &mut Tables<'_>, lease: LeaseId) -> Result<Result<(), StoreError>, FileFault> {
        let Some(ops) = tables.end_lease(lease.0)? else {
            return Ok(Err(StoreError::LeaseEnded { lease }));
        };
        self.apply(tables, ops)?;
        self.ended.push(lease.0);
        self.written = true;
        Ok(Ok(()))
    }

    fn compact(&mut self, tables: &mut Tables<'_>, to: Revision) -> Result<Result<(), StoreError>, FileFault> {
        if to.0 > self.counters.head {
            return Ok(Err(StoreError::Ahead { requested: to, head: Revision(self.counters.head) }));
        }
        if to.0 > self.counters.compacted {
            apply::compact(tables, &mut self.counters, to.0)?;
            self.written = true;
        }
        Ok(Ok(()))
    }
}
