//! Packs many small changes into few transactions, and commits them in order.

use muster_core::txn::{Revision, Txn};
use muster_store::{CommitOutcome, StoreError};

use crate::app::Writer;

/// Operations in one transaction: below the limit of 128 of a store, with room for a final part.
pub(crate) const MAX_OPS: usize = 100;

/// Result of a sequence of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitSummary {
    /// Revision at which the view shows the result.
    pub(crate) reached: Revision,
    /// True if all transactions were committed. Otherwise another writer changed the same keys, or an outcome is unknown:
    /// plan again on the state at `reached`.
    pub(crate) done: bool,
    /// True if at least one transaction was committed.
    pub(crate) moved: bool,
}

/// Merges parts into few transactions, in order. A part with its guards stays in one transaction.
pub(crate) fn pack(parts: Vec<Txn>) -> Vec<Txn> {
    let mut txns: Vec<Txn> = Vec::new();
    for part in parts {
        match txns.last_mut() {
            Some(txn)
                if txn.ops.len() + part.ops.len() <= MAX_OPS && txn.guards.len() + part.guards.len() <= MAX_OPS =>
            {
                txn.merge(part);
            }
            Some(_) | None => txns.push(part),
        }
    }
    txns
}

/// Commits transactions in order, up to the first that is not committed.
pub(crate) async fn commit_all(writer: &Writer, txns: Vec<Txn>) -> Result<CommitSummary, StoreError> {
    let mut summary = CommitSummary { reached: Revision(0), done: true, moved: false };
    for txn in txns {
        match writer.store.commit(txn).await {
            Ok(CommitOutcome::Committed { revision }) => {
                summary.reached = summary.reached.max(revision);
                summary.moved = true;
            }
            Ok(CommitOutcome::Conflict { revision, .. }) => {
                return Ok(CommitSummary { reached: revision, done: false, ..summary });
            }
            Err(StoreError::Unknown { .. }) => {
                return Ok(CommitSummary { reached: writer.latest_revision.read().await?, done: false, ..summary });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(summary)
}
