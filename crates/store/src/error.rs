//! Errors of an open store. Opening has errors of its own, see [`crate::OpenError`].

use std::error::Error;
use std::sync::Arc;

use muster_core::txn::{LeaseId, Revision};

use crate::limits::InvalidRequest;

/// The source of an error. Shared, because one failed fsync is the error of all requests of a group.
pub type ErrorCause = Arc<dyn Error + Send + Sync>;

/// An operation of the store failed.
///
/// The variants differ in what the caller should do next. After [`Unavailable`](StoreError::Unavailable) and
/// [`Full`](StoreError::Full) *nothing* was written, and the request may be sent again. After
/// [`Unknown`](StoreError::Unknown) the change may have been made, and the caller has to read back. In a cluster it may
/// even be made later; guards on everything that the change was computed from make that harmless.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The request breaks a limit of the contract, on every backend. A retry fails the same way.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),

    #[error("revision {requested} has been compacted, the oldest readable revision is {oldest}: read the latest state")]
    Compacted { requested: Revision, oldest: Revision },

    /// The store was restored from a backup or replaced: the reader has seen a later state.
    #[error("revision {requested} is in the future, the store is at {head}: it may have been restored from a backup")]
    Ahead { requested: Revision, head: Revision },

    #[error("lease {} has expired: grant a new one and put its keys again", .lease.0)]
    LeaseEnded { lease: LeaseId },

    #[error("{store}: no space left, nothing was written: free some space and retry")]
    Full {
        store: String,
        #[source]
        cause: ErrorCause,
    },

    #[error("{store}: unavailable, nothing was written")]
    Unavailable {
        store: String,
        #[source]
        cause: ErrorCause,
    },

    #[error("{store}: the result of the change is unknown: read back the changed keys")]
    Unknown {
        store: String,
        #[source]
        cause: ErrorCause,
    },

    #[error("{store}: the content is corrupt: stop the server, keep a copy of the store's files, and restore a backup")]
    Corrupt {
        store: String,
        #[source]
        cause: ErrorCause,
    },

    #[error("the store is closed")]
    Closed,
}

/// A cause that has no error type of its own.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TextCause(pub(crate) String);

/// Makes a [`ErrorCause`] from a text.
pub(crate) fn text_cause(what: impl Into<String>) -> ErrorCause {
    Arc::new(TextCause(what.into()))
}
