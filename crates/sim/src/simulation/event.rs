//! Events of the simulation, and the queue that orders them by time.
//!
//! An event for a process names its life: it is dropped if the process has died since. Events at the same time keep their
//! insertion order, which makes a run repeatable.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use muster_agent::report::dispatch::ServerAnswer;
use muster_core::names::NodeName;
use muster_core::node::status::Activity;
use muster_core::report::Report;
use muster_core::txn::{Revision, Txn};
use muster_rollout::executor::{GateRequest, IoRequest};
use muster_wire::sync::SyncOpen;

use super::network::StreamMessage;
use super::operator::OperatorAction;
use super::replica::calls::{Answer, Call, Request};
use super::replica::reports::GroupRequest;
use super::replica::{IoClient, ReplicaTask};
use super::store::Writer;

/// Index of a server or a machine.
pub(crate) type ReplicaNumber = usize;
pub(crate) type MachineNumber = usize;
pub(crate) type SessionNumber = u64;

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Store(StoreEvent),
    Replica {
        replica: ReplicaNumber,
        life: u64,
        what: ReplicaEvent,
    },
    Agent {
        machine: MachineNumber,
        life: u64,
        what: AgentEvent,
    },
    Machine {
        machine: MachineNumber,
        what: MachineEvent,
    },
    /// A large fault is injected.
    InjectFault,
    /// A large fault hits the server that holds the rollout controller.
    LockHolderFails,
    /// An operator retries a node whose last run or validation has failed.
    RetryFailedNode,
    ReplicaStarts {
        replica: ReplicaNumber,
        life: u64,
    },
    CutOffEnds {
        machine: MachineNumber,
        number: u64,
    },
    /// Both ends of a stream without messages close it.
    StreamTimedOut {
        session: SessionNumber,
    },
    Operator(OperatorAction),
    /// A node joins the design, starts to leave it, or is removed.
    AddNode,
    Decommission {
        node: NodeName,
    },
    RemoveNode {
        node: NodeName,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum StoreEvent {
    Arrives {
        replica: ReplicaNumber,
        life: u64,
        call: Box<Call>,
        request: Request,
        writer: Writer,
        answered: bool,
    },
    /// Its sender got an unknown outcome.
    CommittedLate {
        txn: Txn,
        writer: Writer,
    },
    LeasesEnd,
}

#[derive(Clone, Debug)]
pub(crate) enum ReplicaEvent {
    /// The watch delivers the changes up to a revision.
    WatchNotified {
        watch: u64,
        upto: Revision,
    },
    Answered {
        call: Call,
        answer: Answer,
    },
    Due(ReplicaTask),
    Opened {
        session: SessionNumber,
        open: Box<SyncOpen>,
    },
    ActivityReported {
        session: SessionNumber,
        activity: Activity,
    },
    Reported {
        machine: MachineNumber,
        agent: u64,
        ticket: u64,
        report: Box<Report>,
    },
    SessionLost {
        session: SessionNumber,
    },
    /// The server pings an agent.
    Pings {
        session: SessionNumber,
    },
    OperatorAction(OperatorAction),
    /// An IO request of the rollout engine is performed.
    PerformIo {
        who: IoClient,
        request: Box<IoRequest>,
    },
    /// A refused report has waited for the view long enough.
    CatchUpEnds {
        request: GroupRequest,
        revision: Revision,
    },
    /// The view has not reached the revision in time.
    ViewWaitExpired {
        who: IoClient,
        revision: Revision,
    },
    /// The checks of a gate have finished.
    GateChecked(Box<GateRequest>),
}

#[derive(Clone, Debug)]
pub(crate) enum AgentEvent {
    Starts,
    Tick,
    /// A slow write has finished.
    DiskDone,
    Dials,
    Received {
        session: SessionNumber,
        message: Box<StreamMessage>,
    },
    SessionLost {
        session: SessionNumber,
    },
    /// No server has accepted the stream.
    OpeningTimedOut {
        session: SessionNumber,
    },
    SendsAgain {
        ticket: u64,
    },
    Answered {
        ticket: u64,
        answer: ServerAnswer,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum MachineEvent {
    ApplierEnds {
        number: u64,
    },
    ChecksEnd {
        number: u64,
    },
    /// A broken node recovers.
    Recovers,
}

/// Virtual time since the start of the simulation.
pub type SimTime = Duration;

#[derive(Clone, Debug)]
pub(crate) struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    /// The number of events ever scheduled.
    count: u64,
}

#[derive(Clone, Debug)]
struct Entry<E> {
    at: SimTime,
    number: u64,
    /// Boxed, since the heap moves its entries and events are large.
    event: Box<E>,
}

impl<E> EventQueue<E> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), count: 0 }
    }

    pub(crate) fn schedule(&mut self, at: SimTime, event: E) {
        self.count += 1;
        self.heap.push(Reverse(Entry { at, number: self.count, event: Box::new(event) }));
    }

    pub(crate) fn next_at(&self) -> Option<SimTime> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    pub(crate) fn pop(&mut self) -> Option<(SimTime, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, *entry.event))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earliest_event_first_and_ties_in_insertion_order() {
        let mut queue = EventQueue::new();
        let second = Duration::from_secs;
        for (at, what) in [(2, "c"), (1, "a"), (1, "b")] {
            queue.schedule(second(at), what);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop().map(|(_, what)| what)).collect();
        assert_eq!(order, ["a", "b", "c"]);
    }
}
