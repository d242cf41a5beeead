//! StoreHealth of a store, for `muster doctor` and the metrics.

use std::time::Duration;

use muster_core::txn::Revision;

/// Other processes that may write to the same store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// None. The holder of a lease that was granted to an earlier process is gone.
    Exclusive,
    /// Any number of processes on any number of machines.
    Shared,
}

/// StoreHealth of a store at the time of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// Servers of the store, sorted by name. A store in a file has one.
    pub members: Vec<Member>,
    /// Time of one linearizable read; none if it failed.
    pub latency: Option<Duration>,
    /// Alarms that block writes, such as etcd's exhausted quota.
    pub alarms: Vec<Alarm>,
    /// The oldest readable revision, if it is known.
    pub oldest: Option<Revision>,
    /// The latest revision.
    pub revision: Option<Revision>,
}

/// One server of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The member's name, or its address if it has no name.
    pub name: String,
    pub endpoints: Vec<String>,
    /// The error, if the member did not answer.
    pub state: Result<MemberState, String>,
}

/// State of a member that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    pub latency: Duration,
    pub version: String,
    pub is_leader: bool,
    /// A new member of the cluster that does not vote yet.
    pub learner: bool,
    /// Size of its file, and how much of it is in use. Defragmentation frees the rest.
    pub bytes: u64,
    pub bytes_in_use: u64,
    /// Size at which it refuses writes, if it reports one.
    pub quota: Option<u64>,
    /// Raft entries that it has not applied yet.
    pub behind: u64,
    /// Errors that the member reports.
    pub errors: Vec<String>,
}

/// A condition that an operator has to resolve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The member that raised it, by its name in [`StoreHealth::members`].
    pub member: String,
    pub kind: AlarmKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmKind {
    /// The quota is exhausted. No writes are accepted until space was freed and the alarm was disarmed.
    NoSpace,
    /// A member found corrupt data.
    Corrupt,
}
