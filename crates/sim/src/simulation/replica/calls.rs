//! Requests of a server to the store, their answers, and their continuations.

use std::time::Duration;

use muster_core::replica::ControllerName;
use muster_core::txn::{LeaseId, Revision, Txn, ValuesBefore};
use muster_store::KeyValue;
use muster_wire::sync::SyncOpen;

use super::host::IoClient;
use super::reports::GroupRequest;
use crate::simulation::event::{SessionNumber, SimTime};

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Commit(Txn),
    /// Reads keys, and all keys under a prefix.
    Read {
        keys: Vec<String>,
        prefix: Option<String>,
    },
    /// Reads the revision of the store, and grants a lease.
    Join {
        ttl: Duration,
    },
    KeepAlive {
        lease: LeaseId,
    },
}

impl Request {
    /// Reads the revision of the store.
    pub(crate) fn revision() -> Self {
        Self::Read { keys: Vec::new(), prefix: None }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Committed { revision: Revision },
    Refused { revision: Revision, failed: Vec<String> },
    Read { values: Vec<Option<KeyValue>>, range: Vec<KeyValue>, revision: Revision },
    Joined { lease: LeaseId, after: Revision },
    Kept,
    Failed(Failure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Unavailable,
    Full,
    /// It may have committed, or may commit later.
    Unknown,
    LeaseEnded,
}

/// The continuation of a request.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Join {
        sent: SimTime,
    },
    KeepAlive {
        lease: LeaseId,
        sent: SimTime,
    },
    Register,
    TakeLock {
        name: ControllerName,
        lease: LeaseId,
    },
    AssignIncarnation {
        session: SessionNumber,
        open: Box<SyncOpen>,
        incarnation: u64,
        tries: u32,
    },
    /// The outcome of an assigned incarnation is unknown: the store is read.
    RetryIncarnation {
        session: SessionNumber,
        open: Box<SyncOpen>,
        tries: u32,
    },
    ReportCommit {
        request: GroupRequest,
    },
    ReportRead {
        request: GroupRequest,
    },
    Presence,
    Liveness {
        held: Revision,
    },
    /// Reads the revision of the store.
    Newest {
        who: IoClient,
    },
    Step {
        held: Revision,
        reconcile: u64,
        before: Option<ValuesBefore>,
    },
    Request {
        number: u64,
    },
}
