//! Errors of reading and revising a design.

use jiff::Timestamp;
use muster_core::design::DesignRevision;
use muster_core::names::EnvName;
use muster_store::StoreError;
use thiserror::Error;

use super::tree::TreeError;
use crate::view::StaleView;

/// Reason why a revision of a design cannot be read.
#[derive(Debug, Error)]
pub enum ReadDesignError {
    #[error("environment {env} has no design yet")]
    None { env: EnvName },
    #[error("the design of {env} has no revision {number}")]
    Unknown { env: EnvName, number: DesignRevision, newest: Option<DesignRevision> },
    #[error("revision {number} of the design of {env} cannot be read")]
    Tree {
        env: EnvName,
        number: DesignRevision,
        #[source]
        source: TreeError,
    },
    #[error("the server stopped during the work")]
    CutOff,
}

/// Reason why a revision was not committed.
#[derive(Debug, Error)]
pub enum RevisionError {
    #[error("environment {env} is being restored since {since}")]
    Restoring { env: EnvName, since: Timestamp },
    #[error("environment {env} is being destroyed since {since}, by {by}")]
    Destroying { env: EnvName, since: Timestamp, by: String },
    #[error("the files of the design cannot be stored")]
    Blobs(#[source] std::io::Error),
    #[error("the revision cannot be written to the store")]
    Store(#[from] StoreError),
    #[error("a record cannot be written")]
    Record(#[from] serde_json::Error),
    #[error("the view did not catch up with the write")]
    StaleView(#[from] StaleView),
    #[error("the server stopped during the work")]
    CutOff,
}
