//! File backend for redb that counts fsyncs and keeps the last IO error, to map it to a store error.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};

use crate::store::{ErrorCause, StoreError};

use super::format::BadRow;

/// The operation on the file that failed. It decides whether the store may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileOp {
    Read,
    Write,
    Resize,
    /// After a failed fsync the kernel may hold pages that it considers clean and that are not on disk. Reading them
    /// back proves nothing.
    Sync,
}

/// Record of I/O errors. redb itself only reports "previous I/O error" later.
#[derive(Debug, Default)]
pub(super) struct FileLog {
    fsyncs: AtomicU64,
    failed: Mutex<Option<(FileOp, Arc<io::Error>)>>,
}

impl FileLog {
    pub(super) fn fsyncs(&self) -> u64 {
        self.fsyncs.load(Ordering::Relaxed)
    }

    /// The first error since the last call.
    pub(super) fn take_failure(&self) -> Option<(FileOp, Arc<io::Error>)> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note<T>(&self, op: FileOp, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            // An `io::Error` cannot be cloned; its code or its text is enough.
            let copy = error
                .raw_os_error()
                .map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error);
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert((op, Arc::new(copy)));
        }
        result
    }
}

/// redb's file backend, with a [`FileLog`].
#[derive(Debug)]
pub(super) struct LoggedFile {
    file: FileBackend,
    log: Arc<FileLog>,
}

impl LoggedFile {
    pub(super) fn new(file: File, log: Arc<FileLog>) -> Result<Self, DatabaseError> {
        Ok(Self { file: FileBackend::new(file)?, log })
    }
}

type RangeEdge = Bound<u64>;

impl StorageBackend for LoggedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.log.note(FileOp::Read, self.file.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.log.note(FileOp::Resize, self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.log.fsyncs.fetch_add(1, Ordering::Relaxed);
        self.log.note(FileOp::Sync, self.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.log.note(FileOp::Write, self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: RangeEdge, end: RangeEdge) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: RangeEdge, end: RangeEdge) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: RangeEdge, end: RangeEdge) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: RangeEdge, end: RangeEdge) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: RangeEdge, end: RangeEdge) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: RangeEdge, end: RangeEdge) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

/// Failed work on the file.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileFault {
    /// An error of redb.
    #[error(transparent)]
    Storage(redb::Error),
    #[error(transparent)]
    Row(#[from] BadRow),
    /// The file is fine; this is the reply to the request.
    #[error(transparent)]
    Reply(#[from] StoreError),
}

macro_rules! from_redb {
    ($($error:ty),*) => {$(
        impl From<$error> for FileFault {
            fn from(error: $error) -> Self {
                FileFault::Storage(error.into())
            }
        }
    )*};
}

from_redb!(redb::StorageError, redb::TableError, redb::TransactionError, redb::CommitError);

impl FileFault {
    /// True if redb refuses all work until the file is reopened, as it does after any I/O error.
    pub(super) fn needs_reopening(&self) -> bool {
        match self {
            FileFault::Storage(redb::Error::Io(_) | redb::Error::PreviousIo | redb::Error::DatabaseClosed) => true,
            FileFault::Storage(_) | FileFault::Row(_) | FileFault::Reply(_) => false,
        }
    }

    /// Converts it into the reply.
    pub(super) fn into_error(self, store: &str) -> StoreError {
        let store = store.to_owned();
        match self {
            FileFault::Reply(error) => error,
            FileFault::Row(row) => StoreError::Corrupt { store, cause: Arc::new(row) },
            fault @ FileFault::Storage(redb::Error::Corrupted(_)) => {
                StoreError::Corrupt { store, cause: Arc::new(fault) }
            }
            fault @ FileFault::Storage(_) => StoreError::Unavailable { store, cause: Arc::new(fault) },
        }
    }
}

/// The reply to a write that was rolled back by an I/O error.
pub(super) fn rolled_back(store: &str, error: Arc<io::Error>) -> StoreError {
    let full =
        [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge].contains(&error.kind());
    let (store, cause): (_, ErrorCause) = (store.to_owned(), error);
    if full { StoreError::Full { store, cause } } else { StoreError::Unavailable { store, cause } }
}
