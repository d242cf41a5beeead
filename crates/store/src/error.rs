//! What can go wrong with a store that is open. Opening has errors of its own, see [`crate::OpenError`].

use std::error::Error;
use std::sync::Arc;

use muster_core::txn::{LeaseId, Revision};

use crate::limits::Invalid;

/// What lies behind an error. Shared, because one failed fsync is the answer to every writer of its group.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// Why a store did not do what it was asked.
///
/// The variants differ in what the caller should do next, and that is why they are apart: after
/// [`Unavailable`](StoreError::Unavailable) and [`Full`](StoreError::Full) *nothing* was written and the same request
/// may be sent again; after [`Unknown`](StoreError::Unknown) it may have been, and only reading back can tell. In a
/// cluster it may even be written a little later; a change whose guards name what it was made from cannot do harm then.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The request breaks a rule of the contract, on every backend alike. Sending it again cannot help.
    #[error(transparent)]
    Invalid(#[from] Invalid),

    #[error(
        "revision {asked} has been compacted, the oldest that can still be read is {oldest}: read the latest state"
    )]
    Compacted { asked: Revision, oldest: Revision },

    /// Seen after a store was restored from a backup, or replaced: the reader knows a later life of it.
    #[error("revision {asked} has not happened yet, the store is at {head}: it may have been restored from a backup")]
    Ahead { asked: Revision, head: Revision },

    #[error("lease {} has ended: grant a new one, and put its keys again", .lease.0)]
    LeaseEnded { lease: LeaseId },

    #[error("{store}: no space left, nothing was written: make room, and it takes changes again")]
    Full {
        store: String,
        #[source]
        cause: Cause,
    },

    #[error("{store}: not available at the moment, nothing was written")]
    Unavailable {
        store: String,
        #[source]
        cause: Cause,
    },

    #[error("{store}: it is unknown whether the change was made: read back what it should have changed")]
    Unknown {
        store: String,
        #[source]
        cause: Cause,
    },

    #[error("{store}: its content is damaged: stop the server, keep a copy of the store's files, and restore a backup")]
    Corrupt {
        store: String,
        #[source]
        cause: Cause,
    },

    #[error("the store has been closed")]
    Closed,
}

/// A cause that is no error value of any library.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Said(pub(crate) String);

/// Makes a [`Cause`] of a sentence.
pub(crate) fn said(what: impl Into<String>) -> Cause {
    Arc::new(Said(what.into()))
}
