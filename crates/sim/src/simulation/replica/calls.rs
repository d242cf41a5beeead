//! What a server asks the store, and what it does with the answer.

use std::time::Duration;

use muster_core::replica::ControllerName;
use muster_core::txn::{LeaseId, Revision, Txn};
use muster_store::KeyValue;
use muster_wire::sync::SyncOpen;

use super::host::IoClient;
use super::reports::GroupRequest;
use crate::simulation::event::SessionNumber;
use crate::simulation::event_queue::SimTime;

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Commit(Txn),
    Read {
        keys: Vec<String>,
    },
    /// How far the store is, and then a lease.
    Join {
        ttl: Duration,
    },
    KeepAlive {
        lease: LeaseId,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Committed { revision: Revision },
    Refused { revision: Revision, failed: Vec<String> },
    Read { values: Vec<Option<KeyValue>>, revision: Revision },
    Joined { lease: LeaseId, after: Revision },
    Kept,
    Failed(Failure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Unavailable,
    Full,
    /// It may have been done, or may still be.
    Unknown,
    LeaseEnded,
}

/// For what the store was asked: how it goes on with the answer.
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
    /// The answer to a greeting was lost: what is in the store now?
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
    /// How far the store is.
    Newest {
        who: IoClient,
    },
    Step {
        held: Revision,
        reconcile: u64,
    },
    Request {
        number: u64,
    },
}
