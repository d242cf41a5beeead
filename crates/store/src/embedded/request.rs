//! Requests to the writer and their replies.

use std::time::Duration;

use muster_core::txn::{LeaseId, Op, Revision, Txn};
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::store::{CommitOutcome, Lease};

/// A prepared reply. It is sent when, and only when, its group is durable.
#[derive(Debug)]
pub(super) struct PendingReply<T> {
    reply: oneshot::Sender<Result<T, StoreError>>,
    answer: Option<Result<T, StoreError>>,
}

impl<T> PendingReply<T> {
    pub(super) fn new() -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, receiver) = oneshot::channel();
        (Self { reply, answer: None }, receiver)
    }

    /// Prepares the reply.
    pub(super) fn prepare(&mut self, answer: Result<T, StoreError>) {
        self.answer = Some(answer);
    }

    fn send(self, group_error: Option<&StoreError>) {
        let answer = match (self.answer, group_error) {
            // An invalid request stays invalid, whatever the result of its group.
            (Some(Err(error)), _) => Err(error),
            (_, Some(error)) => Err(error.clone()),
            (Some(answer), None) => answer,
            (None, None) => Err(StoreError::Closed),
        };
        // The caller may have stopped waiting.
        let _ = self.reply.send(answer);
    }
}

#[derive(Debug)]
pub(super) enum Request {
    Commit {
        txn: Txn,
        reply: PendingReply<CommitOutcome>,
    },
    Grant {
        ttl: Duration,
        reply: PendingReply<Lease>,
    },
    Revoke {
        lease: LeaseId,
        reply: PendingReply<()>,
    },
    Compact {
        revision: Revision,
        reply: PendingReply<()>,
    },
    /// A reader found the database of this generation broken.
    Recover {
        generation: u64,
        reply: oneshot::Sender<()>,
    },
}

impl Request {
    /// Sends the prepared reply, or the error of the whole group.
    pub(super) fn send(self, group_error: Option<&StoreError>) {
        match self {
            Request::Commit { reply, .. } => reply.send(group_error),
            Request::Grant { reply, .. } => reply.send(group_error),
            Request::Revoke { reply, .. } | Request::Compact { reply, .. } => reply.send(group_error),
            Request::Recover { reply, .. } => {
                let _ = reply.send(());
            }
        }
    }

    /// Approximate bytes that it adds to its group.
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
            Request::Grant { .. } | Request::Revoke { .. } | Request::Compact { .. } | Request::Recover { .. } => 0,
        }
    }
}
