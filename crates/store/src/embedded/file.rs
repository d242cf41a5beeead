//! The file under redb, with a count of the real fsyncs and a memory of the last error.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};

/// Which operation on the file failed. It decides whether the store may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Read,
    Write,
    Resize,
    /// After a failed fsync the kernel may hold pages that it believes clean and that are not on the disk: what is
    /// read back proves nothing then.
    Sync,
}

/// What happened to the file, kept outside of redb, which only says "previous I/O error" afterwards.
#[derive(Debug, Default)]
pub(super) struct FileLog {
    fsyncs: AtomicU64,
    failed: Mutex<Option<(Step, Arc<io::Error>)>>,
}

impl FileLog {
    pub(super) fn fsyncs(&self) -> u64 {
        self.fsyncs.load(Ordering::Relaxed)
    }

    /// The first error since the last call.
    pub(super) fn take_failure(&self) -> Option<(Step, Arc<io::Error>)> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note<T>(&self, step: Step, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            // An `io::Error` cannot be cloned; the code of the system, or the words, carry what matters.
            let copy = error
                .raw_os_error()
                .map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error);
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert((step, Arc::new(copy)));
        }
        result
    }
}

/// redb's own file backend, watched by a [`FileLog`].
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

type Edge = Bound<u64>;

impl StorageBackend for LoggedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.log.note(Step::Read, self.file.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.log.note(Step::Resize, self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.log.fsyncs.fetch_add(1, Ordering::Relaxed);
        self.log.note(Step::Sync, self.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.log.note(Step::Write, self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Edge, end: Edge) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Edge, end: Edge) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Edge, end: Edge) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Edge, end: Edge) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Edge, end: Edge) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Edge, end: Edge) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
