//! Optimistic transactions: decide on the view, commit with guards, and decide again after a conflict.

use muster_core::txn::{Revision, Txn};
use muster_store::{CommitOutcome, StoreError};

use crate::app::Writer;

/// Operations of one transaction. The store takes 128; the rest is room for a part that is added last.
pub(crate) const MAX_OPS: usize = 100;

/// Limits the attempts of one optimistic transaction.
///
/// An attempt decides on the view and commits with guards. It fails with a conflict if a guard does not hold, or if the
/// outcome is unknown because the store did not answer in time. The next attempt decides on newer data: the caller waits
/// until the view has caught up. There is no backoff, since a conflict means that another writer has committed.
#[derive(Debug)]
pub(crate) struct ConflictRetry {
    left: usize,
}

impl ConflictRetry {
    pub(crate) fn new(limit: usize) -> Self {
        Self { left: limit }
    }

    /// Begins an attempt; false once the limit is reached.
    pub(crate) fn begin_attempt(&mut self) -> bool {
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }

    /// The current attempt does not count: it committed a part of its work.
    pub(crate) fn made_progress(&mut self) {
        self.left += 1;
    }
}

/// Outcome of committing a list of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommitProgress {
    /// Revision at which the view shows all of it.
    pub(crate) revision: Revision,
    /// All were committed. If not, a guard did not hold or the outcome is unknown: decide again on newer data.
    pub(crate) complete: bool,
    /// At least one was committed.
    pub(crate) any: bool,
    /// The store did not answer in time: the last one may have been committed.
    pub(crate) unknown: bool,
}

/// Packs parts into as few transactions as possible. A part is never divided: its guards protect its operations.
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

/// Commits transactions in order, up to the first that is refused or whose outcome is unknown.
pub(crate) async fn commit_all(writer: &Writer, txns: Vec<Txn>) -> Result<CommitProgress, StoreError> {
    let mut progress = CommitProgress { revision: Revision(0), complete: true, any: false, unknown: false };
    for txn in txns {
        match writer.store.commit(txn).await {
            Ok(CommitOutcome::Committed { revision }) => {
                progress.revision = progress.revision.max(revision);
                progress.any = true;
            }
            Ok(CommitOutcome::Conflict { revision, .. }) => {
                return Ok(CommitProgress { revision, complete: false, ..progress });
            }
            Err(StoreError::Unknown { .. }) => {
                let revision = writer.latest_revision.read().await?;
                return Ok(CommitProgress { revision, complete: false, unknown: true, ..progress });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_with_progress_do_not_count() {
        let mut retry = ConflictRetry::new(2);
        assert!(retry.begin_attempt());
        for _ in 0..10 {
            assert!(retry.begin_attempt());
            retry.made_progress();
        }
        assert!(retry.begin_attempt());
        assert!(!retry.begin_attempt() && !retry.begin_attempt());
    }
}
