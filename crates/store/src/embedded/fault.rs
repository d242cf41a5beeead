//! What goes wrong inside, and what it means for the store.

use std::io;
use std::sync::Arc;

use super::record::BadRow;
use crate::error::{Cause, StoreError};

/// A piece of work on the file that did not succeed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// redb could not do it.
    #[error(transparent)]
    Storage(redb::Error),
    #[error(transparent)]
    Row(#[from] BadRow),
    /// Nothing is wrong with the file: this is the answer.
    #[error(transparent)]
    Answer(#[from] StoreError),
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
    /// Whether redb refuses all further work until the file has been opened anew: so it does after any I/O error.
    pub(super) fn needs_reopening(&self) -> bool {
        match self {
            Fault::Storage(redb::Error::Io(_) | redb::Error::PreviousIo | redb::Error::DatabaseClosed) => true,
            Fault::Storage(_) | Fault::Row(_) | Fault::Answer(_) => false,
        }
    }

    /// The answer to whoever asked for it.
    pub(super) fn answer(self, store: &str) -> StoreError {
        let store = store.to_owned();
        match self {
            Fault::Answer(error) => error,
            Fault::Row(row) => StoreError::Corrupt { store, cause: Arc::new(row) },
            fault @ Fault::Storage(redb::Error::Corrupted(_)) => StoreError::Corrupt { store, cause: Arc::new(fault) },
            fault @ Fault::Storage(_) => StoreError::Unavailable { store, cause: Arc::new(fault) },
        }
    }
}

/// The answer to a write that an error of the system undid.
pub(super) fn undone(store: &str, error: Arc<io::Error>) -> StoreError {
    let full =
        [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge].contains(&error.kind());
    let (store, cause): (_, Cause) = (store.to_owned(), error);
    if full { StoreError::Full { store, cause } } else { StoreError::Unavailable { store, cause } }
}
