//! State that the writer, readers and watches share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, TryLockError};
use std::time::Instant;

use muster_core::txn::Revision;
use redb::{Database, ReadTransaction, ReadableDatabase};
use tokio::sync::{mpsc, oneshot, watch};

use super::database::{FileId, panic_text};
use super::file::{FileFault, FileLog};
use super::head_file::{HeadFile, INTERVAL};
use super::leases::LeaseDeadlines;
use super::read;
use super::verification::Verifications;
use super::watch::RecentTxns;
use super::writer::WriteRequest;
use crate::store::{MemberState, StoreError, StoreFault, StoreHealth, StoreMember, StoreStats, text_cause};

/// Published position of the store: all of it is durable.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CommitPosition {
    pub(super) head: u64,
    pub(super) compacted: u64,
}

/// The database, or the reason why there is none.
#[derive(Debug)]
pub(super) enum DatabaseSlot {
    Open {
        database: Database,
        /// Counts the openings, so that a reader can name the one that it found broken.
        generation: u64,
        /// The open file. Its path may name another one by now.
        id: FileId,
    },
    Down(StoreError),
    Closed,
}

#[derive(Debug, Default)]
pub(super) struct ActivityCounters {
    pub(super) transactions: AtomicU64,
    pub(super) conflicts: AtomicU64,
    pub(super) groups: AtomicU64,
}

#[derive(Debug)]
pub(super) struct EmbeddedShared {
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Readers hold the lock while they read. The writer takes it exclusively to close or reopen the file.
    pub(super) slot: RwLock<DatabaseSlot>,
    pub(super) recent: RecentTxns,
    /// The sender is in the writer: when it is dropped, the store is closed.
    pub(super) position: watch::Receiver<CommitPosition>,
    pub(super) requests: mpsc::WeakSender<WriteRequest>,
    pub(super) leases: LeaseDeadlines,
    pub(super) log: Arc<FileLog>,
    pub(super) head_file: HeadFile,
    pub(super) activity: ActivityCounters,
    pub(super) verifications: Verifications,
}

/// A read without a result.
enum ReadFailure {
    Error(StoreError),
    Broken { generation: u64, error: StoreError },
}

impl EmbeddedShared {
    /// Reads from one consistent state of the file, on a blocking thread. Does not delay the writer.
    pub(super) async fn read<T, F>(self: &Arc<Self>, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&ReadTransaction) -> Result<T, FileFault> + Send + Sync + 'static,
    {
        let work = Arc::new(work);
        let mut tried = false;
        loop {
            let (shared, again) = (Arc::clone(self), Arc::clone(&work));
            let read = tokio::task::spawn_blocking(move || shared.read_now(again.as_ref())).await;
            match read.map_err(|error| self.read_panicked(error))? {
                Ok(found) => return Ok(found),
                Err(ReadFailure::Error(error)) => return Err(error),
                Err(ReadFailure::Broken { error, .. }) if tried => return Err(error),
                // After a full disk, for example, redb refuses reads until the file is reopened.
                Err(ReadFailure::Broken { generation, .. }) => self.wait_recovered(generation).await?,
            }
            tried = true;
        }
    }

    fn read_now<T>(&self, work: &impl Fn(&ReadTransaction) -> Result<T, FileFault>) -> Result<T, ReadFailure> {
        let slot = self.slot.read().unwrap_or_else(PoisonError::into_inner);
        match &*slot {
            DatabaseSlot::Open { database, generation, .. } => {
                let read = database.begin_read().map_err(FileFault::from).and_then(|txn| work(&txn));
                read.map_err(|fault| {
                    let broken = fault.needs_reopening();
                    let error = fault.into_error(&self.name);
                    if broken {
                        ReadFailure::Broken { generation: *generation, error }
                    } else {
                        ReadFailure::Error(error)
                    }
                })
            }
            DatabaseSlot::Down(error) => Err(ReadFailure::Error(error.clone())),
            DatabaseSlot::Closed => Err(ReadFailure::Error(StoreError::Closed)),
        }
    }

    /// Waits until the writer has recovered a broken database.
    async fn wait_recovered(&self, generation: u64) -> Result<(), StoreError> {
        let (reply, recovered) = oneshot::channel();
        let requests = self.requests.upgrade().ok_or(StoreError::Closed)?;
        requests.send(WriteRequest::Recover { generation, reply }).await.map_err(|_| StoreError::Closed)?;
        recovered.await.map_err(|_| StoreError::Closed)
    }

    /// Closes the file; another process can open it.
    pub(super) fn close(&self) {
        *self.slot.write().unwrap_or_else(PoisonError::into_inner) = DatabaseSlot::Closed;
    }

    pub(super) fn stats(&self) -> StoreStats {
        StoreStats {
            transactions: self.activity.transactions.load(Ordering::Relaxed),
            conflicts: self.activity.conflicts.load(Ordering::Relaxed),
            groups: self.activity.groups.load(Ordering::Relaxed),
            fsyncs: self.log.fsyncs(),
            bytes: std::fs::metadata(&self.path).map_or(0, |file| file.len()),
        }
    }

    /// Remembers the revision at intervals until the store is closed.
    pub(super) fn keep_head_file(&self) {
        loop {
            std::thread::park_timeout(INTERVAL);
            // The writer has remembered its last revision.
            if self.position.has_changed().is_err() {
                return;
            }
            let head = self.position.borrow().head;
            self.head_file.reached(head);
        }
    }

    /// Compares the open file with the one that its path names.
    fn file_fault(&self) -> Option<StoreFault> {
        // Async callers must not wait for a verification that has begun since their read.
        let slot = match self.slot.try_read() {
            Ok(slot) => slot,
            Err(TryLockError::Poisoned(slot)) => slot.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let DatabaseSlot::Open { id, .. } = &*slot else { return None };
        match std::fs::metadata(&self.path) {
            Ok(found) if FileId::of(&found) == *id => None,
            Ok(_) => Some(StoreFault::FileReplaced),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(StoreFault::FileDeleted),
            // The reads of the open file decide.
            Err(_) => None,
        }
    }

    /// The reply to a read that panicked, as redb does on some kinds of damage.
    fn read_panicked(&self, error: tokio::task::JoinError) -> StoreError {
        let store = self.name.clone();
        match error.try_into_panic() {
            Ok(panic) => StoreError::Corrupt { store, cause: text_cause(panic_text(panic.as_ref())) },
            Err(error) => StoreError::Unavailable { store, cause: Arc::new(error) },
        }
    }

    /// The reply to a request whose writer thread panicked.
    pub(super) fn writer_panicked(&self) -> StoreError {
        let cause = text_cause("the writer thread of the store has panicked");
        StoreError::Unknown { store: self.name.clone(), cause }
    }
}

/// StoreHealth of the store: one read from the file. A verification in progress would block the read.
pub(super) async fn check_health(shared: &Arc<EmbeddedShared>) -> StoreHealth {
    let start = Instant::now();
    let read = tokio::select! {
        biased;
        elapsed = shared.verifications.in_progress() => {
            return StoreHealth { verifying: Some(elapsed), ..StoreHealth::default() };
        }
        read = shared.read(read::counters) => read,
    };
    let latency = start.elapsed();
    let bytes = shared.stats().bytes;
    let state = match &read {
        Ok(_) => Ok(MemberState {
            latency,
            version: format!("redb, Muster {}", env!("CARGO_PKG_VERSION")),
            is_leader: true,
            learner: false,
            bytes,
            bytes_in_use: bytes,
            quota: None,
            behind: 0,
            errors: Vec::new(),
        }),
        Err(error) => Err(error.to_string()),
    };
    let member = StoreMember { name: shared.name.clone(), endpoints: vec![shared.name.clone()], state };
    StoreHealth {
        members: vec![member],
        latency: read.is_ok().then_some(latency),
        alarms: Vec::new(),
        faults: shared.file_fault().into_iter().collect(),
        oldest: read.as_ref().ok().map(|counters| Revision(counters.compacted)),
        revision: read.as_ref().ok().map(|counters| Revision(counters.head)),
        verifying: None,
    }
}
