//! The writer thread: the only code that changes the file. It orders all changes and owns the counters. Requests
//! and their replies are defined here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use muster_core::txn::{LeaseId, Op, Revision, Txn};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};

use crate::store::{CommitOutcome, Integrity, Lease, StoreError, Verification, text_cause};

use super::database::{OpenDatabase, panic_text};
use super::file::{FileFault, FileOp};
use super::format::StoreCounters;
use super::group_commit::{CommitGroup, GroupError};
use super::shared::{CommitPosition, DatabaseSlot, EmbeddedShared};
use super::{EmbeddedOptions, database, file, group_commit};

/// Limits of one commit: enough to share an fsync among all waiting requests, and small enough that the first of them
/// does not wait long.
const MAX_GROUP: usize = 512;
const MAX_GROUP_BYTES: usize = 4 * 1024 * 1024;

/// Interval of attempts to reopen a file while there are no requests.
const RETRY: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct WriterThread {
    pub(super) shared: Arc<EmbeddedShared>,
    pub(super) options: EmbeddedOptions,
    pub(super) requests: mpsc::Receiver<WriteRequest>,
    pub(super) position: watch::Sender<CommitPosition>,
    pub(super) counters: StoreCounters,
    pub(super) state: WriterState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterState {
    Up {
        generation: u64,
    },
    /// The file could not be reopened after an error; it is retried.
    Down {
        generation: u64,
    },
    /// The content of the disk is unknown after a failed fsync.
    Lost,
}

impl WriterThread {
    /// Runs until all senders are gone, and then closes the file.
    pub(super) fn run(mut self) {
        while let Some(first) = self.wait() {
            let mut bytes = first.weight();
            let mut requests = vec![first];
            while requests.len() < MAX_GROUP && bytes < MAX_GROUP_BYTES {
                let Ok(request) = self.requests.try_recv() else { break };
                bytes += request.weight();
                requests.push(request);
            }
            self.serve(requests);
        }
        if let WriterState::Up { .. } = self.state {
            // While the file is locked: no other process has opened it yet.
            self.shared.head_file.closed(self.counters.head);
        }
        self.shared.close();
    }

    /// The next request. While the file is closed it is also retried, for readers.
    fn wait(&mut self) -> Option<WriteRequest> {
        loop {
            match self.state {
                WriterState::Up { .. } | WriterState::Lost => return self.requests.blocking_recv(),
                WriterState::Down { .. } => match self.requests.try_recv() {
                    Ok(request) => return Some(request),
                    Err(TryRecvError::Disconnected) => return None,
                    Err(TryRecvError::Empty) => {
                        // This thread has no other work.
                        std::thread::park_timeout(RETRY);
                        // Ignored: later requests get the same error.
                        let _ = self.reopen();
                    }
                },
            }
        }
    }

    fn serve(&mut self, mut requests: Vec<WriteRequest>) {
        let result = self.carry_out(&mut requests);
        for request in requests {
            request.send(result.as_ref().err());
        }
    }

    fn carry_out(&mut self, requests: &mut [WriteRequest]) -> Result<(), StoreError> {
        if let WriterState::Down { .. } = self.state {
            self.reopen()?;
        }
        for request in &*requests {
            if let WriteRequest::Recover { generation, .. } = request
                && self.state == (WriterState::Up { generation: *generation })
            {
                self.recover(None)?;
            }
        }
        for request in &mut *requests {
            if let WriteRequest::Verify { reply } = request {
                let answer = self.verify();
                reply.prepare(answer);
            }
        }
        let written = {
            let slot = self.shared.slot.read().unwrap_or_else(PoisonError::into_inner);
            match &*slot {
                DatabaseSlot::Open { database, .. } => catch_unwind(AssertUnwindSafe(|| {
                    group_commit::write(database, self.counters, &self.options, requests)
                })),
                DatabaseSlot::Down(error) => return Err(error.clone()),
                DatabaseSlot::Closed => return Err(StoreError::Closed),
            }
        };
        let written = match written {
            Ok(written) => written,
            Err(panic) => {
                let store = self.shared.name.clone();
                let cause = text_cause(panic_text(panic.as_ref()));
                // The reply is the same whether this works or not; later requests get its error.
                let _ = self.reopen();
                return Err(StoreError::Unknown { store, cause });
            }
        };
        match written {
            Ok(group) => self.publish(group),
            Err(GroupError::RolledBack(fault)) => return Err(self.roll_back(fault)),
            Err(GroupError::Unknown { fault, group }) => self.resolve_unknown_commit(fault, *group)?,
        }
        Ok(())
    }

    /// Verifies the file, unless a recent result is known.
    fn verify(&mut self) -> Result<Verification, StoreError> {
        let shared = Arc::clone(&self.shared);
        shared.verifications.run(|| self.verify_file())
    }

    /// Verifies the whole file. No read or write is in progress meanwhile.
    fn verify_file(&mut self) -> Result<Integrity, StoreError> {
        let verified = {
            let mut slot = self.shared.slot.write().unwrap_or_else(PoisonError::into_inner);
            match &mut *slot {
                DatabaseSlot::Open { database, .. } => database::verify(&self.shared.path, database),
                DatabaseSlot::Down(error) => return Err(error.clone()),
                DatabaseSlot::Closed => return Err(StoreError::Closed),
            }
        };
        match verified {
            Ok(true) => Ok(Integrity::Intact),
            Ok(false) => self.reopen().map(|()| Integrity::Repaired),
            Err(error) => {
                // redb refuses writes after a failed verification until the file is reopened.
                let _ = self.reopen();
                Err(StoreError::Corrupt { store: self.shared.name.clone(), cause: Arc::new(error) })
            }
        }
    }

    /// Publishes a durable group. The order matters: a visible revision must be readable.
    fn publish(&mut self, group: CommitGroup) {
        self.counters = group.counters;
        let activity = &self.shared.activity;
        activity.transactions.fetch_add(group.commits.len() as u64, Ordering::Relaxed);
        activity.conflicts.fetch_add(group.conflicts, Ordering::Relaxed);
        activity.groups.fetch_add(u64::from(group.written), Ordering::Relaxed);
        for lease in group.granted {
            self.shared.leases.insert(lease.id.0, lease.ttl);
        }
        for lease in group.ended {
            self.shared.leases.remove(lease);
        }
        self.shared.recent.extend(group.commits);
        self.announce();
    }

    fn announce(&self) {
        let StoreCounters { head, compacted, .. } = self.counters;
        self.position.send_if_modified(|position| {
            let entry = (position.head, position.compacted) != (head, compacted);
            *position = CommitPosition { head, compacted };
            entry
        });
    }

    /// Handles a group that was certainly rolled back. Returns the reply to its requests.
    fn roll_back(&mut self, fault: FileFault) -> StoreError {
        if !fault.needs_reopening() {
            return fault.into_error(&self.shared.name);
        }
        let failure = self.shared.log.take_failure();
        let answer = match &failure {
            Some((_, error)) => file::rolled_back(&self.shared.name, Arc::clone(error)),
            None => fault.into_error(&self.shared.name),
        };
        // The reply is the same whether this works or not; later requests get its error.
        let _ = self.recover(failure.map(|(op, _)| op));
        answer
    }

    /// Handles a failed commit that may be in the file: all of it or nothing. After reopening, the counter of commits
    /// shows which.
    fn resolve_unknown_commit(&mut self, fault: FileFault, group: CommitGroup) -> Result<(), StoreError> {
        let failure = self.shared.log.take_failure();
        let store = self.shared.name.clone();
        let unknown = |cause| StoreError::Unknown { store: store.clone(), cause };
        if let Err(error) = self.recover(failure.as_ref().map(|(op, _)| *op)) {
            return Err(unknown(Arc::new(error)));
        }
        if self.counters.group == group.counters.group {
            self.publish(group);
            return Ok(());
        }
        Err(match failure {
            Some((_, error)) => file::rolled_back(&store, error),
            None => fault.into_error(&store),
        })
    }

    /// Reopens the store after an I/O error, if that is safe.
    fn recover(&mut self, failed: Option<FileOp>) -> Result<(), StoreError> {
        let failed = failed.or_else(|| self.shared.log.take_failure().map(|(op, _)| op));
        if failed == Some(FileOp::Sync) {
            tracing::error!(store = self.shared.name, "fsync failed: the store stops; check its disk");
            self.state = WriterState::Lost;
            let cause = text_cause("fsync failed: check the disk, then restart the server");
            let error = StoreError::Unavailable { store: self.shared.name.clone(), cause };
            *self.shared.slot.write().unwrap_or_else(PoisonError::into_inner) = DatabaseSlot::Down(error.clone());
            return Err(error);
        }
        self.reopen()
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        let generation = match self.state {
            WriterState::Up { generation } | WriterState::Down { generation } => generation + 1,
            WriterState::Lost => 0,
        };
        let mut slot = self.shared.slot.write().unwrap_or_else(PoisonError::into_inner);
        // The old one has to close the file first. redb may panic on a damaged one.
        let old = std::mem::replace(&mut *slot, DatabaseSlot::Closed);
        let _ = catch_unwind(AssertUnwindSafe(|| drop(old)));
        let head = self.position.borrow().head;
        let opened = database::open(&self.shared.path, self.options.cache_bytes, &self.shared.log);
        match opened.and_then(|opened| opened.not_before(&self.shared.path, head)) {
            Ok(OpenDatabase { database, counters, leases, id, .. }) => {
                *slot = DatabaseSlot::Open { database, generation, id };
                self.state = WriterState::Up { generation };
                self.counters = counters;
                drop(slot);
                // A group of unknown result may be in the file: watches then read it from the history.
                if self.position.borrow().head != counters.head {
                    self.shared.recent.clear();
                }
                self.shared.leases.sync_with(&leases);
                self.announce();
                tracing::info!(store = self.shared.name, "reopened the store after an error");
                Ok(())
            }
            Err(error) => {
                tracing::error!(
                    store = self.shared.name,
                    error = &error as &dyn std::error::Error,
                    "cannot reopen the store"
                );
                let error = StoreError::Unavailable { store: self.shared.name.clone(), cause: Arc::new(error) };
                *slot = DatabaseSlot::Down(error.clone());
                self.state = WriterState::Down { generation };
                Err(error)
            }
        }
    }
}

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
pub(super) enum WriteRequest {
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
    /// Verifies the file before the group is written, unless a recent result is known.
    Verify {
        reply: PendingReply<Verification>,
    },
    /// A reader found the database of this generation broken.
    Recover {
        generation: u64,
        reply: oneshot::Sender<()>,
    },
}

impl WriteRequest {
    /// Sends the prepared reply, or the error of the whole group.
    pub(super) fn send(self, group_error: Option<&StoreError>) {
        match self {
            WriteRequest::Commit { reply, .. } => reply.send(group_error),
            WriteRequest::Grant { reply, .. } => reply.send(group_error),
            WriteRequest::Revoke { reply, .. } | WriteRequest::Compact { reply, .. } => reply.send(group_error),
            WriteRequest::Verify { reply } => reply.send(group_error),
            WriteRequest::Recover { reply, .. } => {
                let _ = reply.send(());
            }
        }
    }

    /// Approximate bytes that it adds to its group.
    pub(super) fn weight(&self) -> usize {
        match self {
            WriteRequest::Commit { txn, .. } => txn
                .ops
                .iter()
                .map(|op| match op {
                    Op::Put { key, value, .. } => key.len() + value.len(),
                    Op::Delete { key } => key.len(),
                })
                .sum(),
            WriteRequest::Grant { .. }
            | WriteRequest::Revoke { .. }
            | WriteRequest::Compact { .. }
            | WriteRequest::Verify { .. }
            | WriteRequest::Recover { .. } => 0,
        }
    }
}
