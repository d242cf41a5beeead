//! Errors of the file and their meaning for the store.

use std::io;
use std::sync::Arc;

use super::format::BadRow;
use crate::error::{ErrorCause, StoreError};

/// Failed work on the file.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
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
        impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                Fault::Storage(error.into())
            }
        }
    )*};
}

from_redb!(redb::StorageError, redb::TableError, redb::TransactionError, redb::CommitError);

impl Fault {
    /// Whether redb refuses all work until the file is reopened, as it does after any I/O error.
    pub(super) fn needs_reopening(&self) -> bool {
        match self {
            Fault::Storage(redb::Error::Io(_) | redb::Error::PreviousIo | redb::Error::DatabaseClosed) => true,
            Fault::Storage(_) | Fault::Row(_) | Fault::Reply(_) => false,
        }
    }

    /// Converts it into the reply.
    pub(super) fn into_error(self, store: &str) -> StoreError {
        let store = store.to_owned();
        match self {
            Fault::Reply(error) => error,
            Fault::Row(row) => StoreError::Corrupt { store, cause: Arc::new(row) },
            fault @ Fault::Storage(redb::Error::Corrupted(_)) => StoreError::Corrupt { store, cause: Arc::new(fault) },
            fault @ Fault::Storage(_) => StoreError::Unavailable { store, cause: Arc::new(fault) },
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
