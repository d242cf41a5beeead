//! Many small changes as few transactions, committed one after the other.

use muster_core::txn::{Revision, Txn};
use muster_store::{CommitOutcome, StoreError};

use crate::App;

/// Stays below the 128 operations that a store takes in one transaction, with room for a part that comes last.
pub(crate) const OPS: usize = 100;

/// What became of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    /// How far the view must be to see it.
    pub(crate) reached: Revision,
    /// Whether all of it is done. If not, somebody else changes the same things, or the store did not say: it is to be
    /// planned anew on what is there then.
    pub(crate) done: bool,
    /// Whether any of it is.
    pub(crate) moved: bool,
}

/// Puts parts together. What belongs together, guards with their operations, stays in one transaction; the order stays.
pub(crate) fn pack(parts: Vec<Txn>) -> Vec<Txn> {
    let mut txns: Vec<Txn> = Vec::new();
    for part in parts {
        match txns.last_mut() {
            Some(txn) if txn.ops.len() + part.ops.len() <= OPS && txn.guards.len() + part.guards.len() <= OPS => {
                txn.merge(part);
            }
            Some(_) | None => txns.push(part),
        }
    }
    txns
}

/// Commits transactions in their order, up to the first that is not taken.
pub(crate) async fn carry_out(app: &App, txns: Vec<Txn>) -> Result<Carried, StoreError> {
    let mut carried = Carried { reached: Revision(0), done: true, moved: false };
    for txn in txns {
        match app.store.commit(txn).await {
            Ok(CommitOutcome::Committed { revision }) => {
                carried.reached = carried.reached.max(revision);
                carried.moved = true;
            }
            Ok(CommitOutcome::Conflict { revision, .. }) => {
                return Ok(Carried { reached: revision, done: false, ..carried });
            }
            Err(StoreError::Unknown { .. }) => {
                return Ok(Carried { reached: app.latest_revision.read().await?, done: false, ..carried });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(carried)
}
