//! What the writer, the readers and the watches have in common.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use redb::{Database, ReadTransaction, ReadableDatabase};
use tokio::sync::{mpsc, oneshot, watch};

use super::fault::Fault;
use super::file::FileLog;
use super::leases::LeaseBook;
use super::recent::Recent;
use super::request::Request;
use crate::error::{StoreError, said};
use crate::store::Stats;

/// Where the store stands, as everybody may know: all of it is durable.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    pub(super) head: u64,
    pub(super) compacted: u64,
}

/// The database, or why there is none.
#[derive(Debug)]
pub(super) enum Slot {
    Open {
        database: Database,
        /// Counts the openings, so that a reader can say which one it found broken.
        generation: u64,
    },
    Down(StoreError),
    Closed,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) transactions: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) groups: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Readers hold the lock while they read, and only the writer takes it alone, to close or reopen the file: so
    /// nobody ever reads from a file that has been closed under them.
    pub(super) slot: RwLock<Slot>,
    pub(super) recent: Recent,
    /// The writer holds the other end: when it is gone, the store is closed.
    pub(super) position: watch::Receiver<Position>,
    pub(super) requests: mpsc::WeakSender<Request>,
    pub(super) leases: LeaseBook,
    pub(super) log: Arc<FileLog>,
    pub(super) counters: Counters,
}

/// Why a read gave nothing.
enum Missed {
    Answer(StoreError),
    Broken { generation: u64, error: StoreError },
}

impl Shared {
    /// Reads from one consistent state of the file, off the async threads. Writers are not held up by this.
    pub(super) async fn read<T, F>(self: &Arc<Self>, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&ReadTransaction) -> Result<T, Fault> + Send + Sync + 'static,
    {
        let work = Arc::new(work);
        let mut tried = false;
        loop {
            let (shared, again) = (Arc::clone(self), Arc::clone(&work));
            let read = tokio::task::spawn_blocking(move || shared.read_now(again.as_ref())).await;
            match read.map_err(|e| StoreError::Unavailable { store: self.name.clone(), cause: Arc::new(e) })? {
                Ok(found) => return Ok(found),
                Err(Missed::Answer(error)) => return Err(error),
                Err(Missed::Broken { error, .. }) if tried => return Err(error),
                // A writer ran into a full disk, say: redb then refuses reads as well, until it is opened anew.
                Err(Missed::Broken { generation, .. }) => self.mended(generation).await?,
            }
            tried = true;
        }
    }

    fn read_now<T>(&self, work: &impl Fn(&ReadTransaction) -> Result<T, Fault>) -> Result<T, Missed> {
        let slot = self.slot.read().unwrap_or_else(PoisonError::into_inner);
        match &*slot {
            Slot::Open { database, generation } => {
                let read = database.begin_read().map_err(Fault::from).and_then(|txn| work(&txn));
                read.map_err(|fault| {
                    let broken = fault.needs_reopening();
                    let error = fault.answer(&self.name);
                    if broken { Missed::Broken { generation: *generation, error } } else { Missed::Answer(error) }
                })
            }
            Slot::Down(error) => Err(Missed::Answer(error.clone())),
            Slot::Closed => Err(Missed::Answer(StoreError::Closed)),
        }
    }

    /// Waits until the writer has dealt with a database that was found broken.
    async fn mended(&self, generation: u64) -> Result<(), StoreError> {
        let (reply, mended) = oneshot::channel();
        let requests = self.requests.upgrade().ok_or(StoreError::Closed)?;
        requests.send(Request::Mend { generation, reply }).await.map_err(|_| StoreError::Closed)?;
        mended.await.map_err(|_| StoreError::Closed)
    }

    /// The file is let go of; another process may open it from here on.
    pub(super) fn close(&self) {
        *self.slot.write().unwrap_or_else(PoisonError::into_inner) = Slot::Closed;
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            transactions: self.counters.transactions.load(Ordering::Relaxed),
            refused: self.counters.refused.load(Ordering::Relaxed),
            groups: self.counters.groups.load(Ordering::Relaxed),
            fsyncs: self.log.fsyncs(),
            bytes: std::fs::metadata(&self.path).map_or(0, |file| file.len()),
        }
    }

    /// The answer to a request whose writer went away without a word: it panicked.
    pub(super) fn left_alone(&self) -> StoreError {
        let cause = said("the thread that writes the store has ended unexpectedly");
        StoreError::Unknown { store: self.name.clone(), cause }
    }
}
