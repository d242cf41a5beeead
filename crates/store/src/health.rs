//! How a store is doing, for people: what `muster doctor` and the metrics are made from.

use std::time::Duration;

use muster_core::txn::Revision;

/// Who else may write to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// This process alone. Whoever held a lease before it is gone for certain.
    Alone,
    /// Any number of processes on any number of machines.
    Shared,
}

/// What a store says of itself when it is asked now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The servers that it consists of, in the order of their names; one for a store in a file.
    pub members: Vec<Member>,
    /// How long it took to read one revision that no later answer can contradict; none if it could not be read.
    pub latency: Option<Duration>,
    /// What keeps it from taking writes, in its own words: for etcd an alarm, such as an exhausted quota.
    pub alarms: Vec<Alarm>,
    /// The oldest revision that can still be read, where it is known.
    pub oldest: Option<Revision>,
    /// The newest.
    pub revision: Option<Revision>,
}

/// One server of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// What its operator calls it, or where it is reached if it has no name.
    pub name: String,
    pub endpoints: Vec<String>,
    /// Why it did not answer.
    pub state: Result<MemberState, String>,
}

/// What a member that answered says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    pub latency: Duration,
    pub version: String,
    pub leads: bool,
    /// It was added to the cluster, and does not vote yet.
    pub learner: bool,
    /// Bytes of its file, and how many of those hold something; the rest is given back by defragmentation.
    pub bytes: u64,
    pub bytes_in_use: u64,
    /// The bytes at which it stops to take writes, where it tells.
    pub quota: Option<u64>,
    /// How many entries of the common log it has not applied yet.
    pub behind: u64,
    /// Errors that it reports of itself.
    pub errors: Vec<String>,
}

/// Something that keeps a store from working as it should until a person acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The member that raised it, by the name in [`Health::members`].
    pub member: String,
    pub kind: AlarmKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmKind {
    /// The quota is exhausted: nothing is written until space was made and the alarm was disarmed.
    NoSpace,
    /// A member found damaged data.
    Corrupt,
}
