//! What the writer is asked to do.

use std::time::Duration;

use muster_core::txn::{LeaseId, Op, Revision, Txn};
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::store::{Lease, Outcome};

/// Somebody who waits, and the answer that he gets when, and only when, it has become durable.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    reply: oneshot::Sender<Result<T, StoreError>>,
    answer: Option<Result<T, StoreError>>,
}

impl<T> Waiting<T> {
    pub(super) fn new() -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, receiver) = oneshot::channel();
        (Self { reply, answer: None }, receiver)
    }

    /// Says what the answer is going to be.
    pub(super) fn prepare(&mut self, answer: Result<T, StoreError>) {
        self.answer = Some(answer);
    }

    fn settle(self, undone: Option<&StoreError>) {
        let answer = match (self.answer, undone) {
            // A request that was wrong in itself stays wrong, whatever happened to its group.
            (Some(Err(error)), _) => Err(error),
            (_, Some(error)) => Err(error.clone()),
            (Some(answer), None) => answer,
            (None, None) => Err(StoreError::Closed),
        };
        // Whoever asked may have stopped waiting: that is allowed, and nobody is left to tell.
        let _ = self.reply.send(answer);
    }
}

#[derive(Debug)]
pub(super) enum Request {
    Commit {
        txn: Txn,
        waiting: Waiting<Outcome>,
    },
    Grant {
        ttl: Duration,
        waiting: Waiting<Lease>,
    },
    Revoke {
        lease: LeaseId,
        waiting: Waiting<()>,
    },
    Compact {
        revision: Revision,
        waiting: Waiting<()>,
    },
    /// A reader found the database of this generation broken.
    Mend {
        generation: u64,
        reply: oneshot::Sender<()>,
    },
}

impl Request {
    /// Gives the prepared answer, or the error that undid the whole group.
    pub(super) fn settle(self, undone: Option<&StoreError>) {
        match self {
            Request::Commit { waiting, .. } => waiting.settle(undone),
            Request::Grant { waiting, .. } => waiting.settle(undone),
            Request::Revoke { waiting, .. } | Request::Compact { waiting, .. } => waiting.settle(undone),
            Request::Mend { reply, .. } => {
                let _ = reply.send(());
            }
        }
    }

    /// About how many bytes it adds to its group.
    pub(super) fn weight(&self) -> usize {
        match self {
            Request::Commit { txn, .. } => txn
                .ops
                .iter()
                .map(|op| match op {
                    Op::Put { key, value, .. } => key.len() + value.len(),
                    Op::Delete { key } => key.len(),
                })
                .sum(),
            Request::Grant { .. } | Request::Revoke { .. } | Request::Compact { .. } | Request::Mend { .. } => 0,
        }
    }
}
