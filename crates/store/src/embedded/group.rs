//! Many requests as one durable commit: they share its fsync, and each keeps its own revision and its own answer.

use std::time::Duration;

use muster_core::txn::{LeaseId, Op, Revision, Txn};
use redb::Database;

use super::apply::Tables;
use super::compaction;
use super::fault::Fault;
use super::numbers::Numbers;
use super::options::Options;
use super::recent::Commit;
use super::request::Request;
use crate::error::StoreError;
use crate::store::{Lease, Outcome};

/// A group that is durable: what everybody may now be told.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) numbers: Numbers,
    pub(super) commits: Vec<Commit>,
    pub(super) granted: Vec<Lease>,
    pub(super) ended: Vec<i64>,
    pub(super) refused: u64,
    /// Whether anything had to be written. Requests that changed nothing cost no fsync.
    pub(super) written: bool,
}

/// A group that ended in an error.
#[derive(Debug)]
pub(super) enum Broken {
    /// Before its commit began: it certainly left nothing behind.
    Staging(Fault),
    /// During the commit: the file itself has to tell whether it is there.
    Committing { fault: Fault, group: Box<Group> },
}

impl<E: Into<Fault>> From<E> for Broken {
    fn from(error: E) -> Self {
        Broken::Staging(error.into())
    }
}

/// Carries out the requests in their order and commits them together. The answers are prepared, not yet given.
pub(super) fn write(
    database: &Database,
    numbers: Numbers,
    options: &Options,
    requests: &mut [Request],
) -> Result<Group, Broken> {
    let txn = database.begin_write()?;
    let mut group = Group { numbers, commits: vec![], granted: vec![], ended: vec![], refused: 0, written: false };
    {
        let mut tables = Tables::open(&txn)?;
        for request in requests {
            group.stage(&mut tables, request)?;
        }
        if group.written {
            if let Some(to) = compaction::due(&tables, &group.numbers, options)? {
                compaction::compact(&mut tables, &mut group.numbers, to)?;
            }
            group.numbers.group += 1;
            group.numbers.write(&numbers, &mut tables.meta)?;
        }
    }
    if !group.written {
        txn.abort()?;
        return Ok(group);
    }
    match txn.commit() {
        Ok(()) => Ok(group),
        Err(error) => Err(Broken::Committing { fault: error.into(), group: Box::new(group) }),
    }
}

impl Group {
    fn stage(&mut self, tables: &mut Tables<'_>, request: &mut Request) -> Result<(), Fault> {
        match request {
            Request::Commit { txn, waiting } => {
                let answer = self.commit(tables, std::mem::take(txn))?;
                waiting.prepare(answer);
            }
            Request::Grant { ttl, waiting } => {
                let lease = self.grant(tables, *ttl)?;
                waiting.prepare(Ok(lease));
            }
            Request::Revoke { lease, waiting } => {
                let answer = self.revoke(tables, *lease)?;
                waiting.prepare(answer);
            }
            Request::Compact { revision, waiting } => {
                let answer = self.compact(tables, *revision)?;
                waiting.prepare(answer);
            }
            // Whatever was broken has been dealt with by the time that this group can be written.
            Request::Mend { .. } => {}
        }
        Ok(())
    }

    fn commit(&mut self, tables: &mut Tables<'_>, txn: Txn) -> Result<Result<Outcome, StoreError>, Fault> {
        let failed = tables.failed(&txn.guards)?;
        if !failed.is_empty() {
            self.refused += 1;
            return Ok(Ok(Outcome::Refused { revision: Revision(self.numbers.head), failed }));
        }
        if let Some(lease) = tables.ended_lease(&txn.ops)? {
            return Ok(Err(StoreError::LeaseEnded { lease }));
        }
        self.apply(tables, txn.ops)?;
        Ok(Ok(Outcome::Committed { revision: Revision(self.numbers.head) }))
    }

    fn apply(&mut self, tables: &mut Tables<'_>, ops: Vec<Op>) -> Result<(), Fault> {
        let revision = self.numbers.head + 1;
        let applied = tables.apply(ops, revision)?;
        if !applied.changes.is_empty() {
            self.numbers.head = revision;
            self.numbers.history_bytes += applied.row_bytes;
            self.commits.push(Commit { revision, changes: applied.changes });
            self.written = true;
        }
        Ok(())
    }

    fn grant(&mut self, tables: &mut Tables<'_>, ttl: Duration) -> Result<Lease, Fault> {
        self.numbers.last_lease += 1;
        // It counts up by one with each lease: it takes longer than any store lives to leave the range.
        let id = i64::try_from(self.numbers.last_lease).unwrap_or(i64::MAX);
        tables.leases.insert(id, u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))?;
        self.written = true;
        let lease = Lease { id: LeaseId(id), ttl };
        self.granted.push(lease);
        Ok(lease)
    }

    fn revoke(&mut self, tables: &mut Tables<'_>, lease: LeaseId) -> Result<Result<(), StoreError>, Fault> {
        let Some(ops) = tables.end_lease(lease.0)? else {
            return Ok(Err(StoreError::LeaseEnded { lease }));
        };
        self.apply(tables, ops)?;
        self.ended.push(lease.0);
        self.written = true;
        Ok(Ok(()))
    }

    fn compact(&mut self, tables: &mut Tables<'_>, to: Revision) -> Result<Result<(), StoreError>, Fault> {
        if to.0 > self.numbers.head {
            return Ok(Err(StoreError::Ahead { asked: to, head: Revision(self.numbers.head) }));
        }
        if to.0 > self.numbers.compacted {
            compaction::compact(tables, &mut self.numbers, to.0)?;
            self.written = true;
        }
        Ok(Ok(()))
    }
}
