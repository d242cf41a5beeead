//! Everything that can happen, as data. Who is addressed is named with the life that it lives at that time: what was meant for
//! a process that has died since reaches nobody.

use muster_agent::report::dispatch::ReportAnswer;
use muster_core::names::NodeName;
use muster_core::node::status::Activity;
use muster_core::report::Report;
use muster_core::txn::{Revision, Txn};
use muster_rollout::executor::{GateRequest, IoRequest};
use muster_wire::sync::SyncOpen;

use super::network::StreamMessage;
use super::operator::OperatorAction;
use super::replica::IoClient;
use super::replica::calls::{Answer, Call, Request};
use super::replica::reports::GroupRequest;
use super::replica::task::ReplicaTask;
use super::store::Writer;

/// A server, by its place; a machine, by its place.
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
    /// The weather turns: something goes wrong, or is well again.
    InjectFault,
    ReplicaStarts {
        replica: ReplicaNumber,
        life: u64,
    },
    CutOffEnds {
        machine: MachineNumber,
        number: u64,
    },
    /// Both ends of a connection over which nothing comes any more give it up.
    StreamTimedOut {
        session: SessionNumber,
    },
    Operator(OperatorAction),
    /// The design grows by a node, or one leaves it, and is gone.
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
    /// Its sender was told that nobody knows.
    DoneLater {
        txn: Txn,
        writer: Writer,
    },
    LeasesEnd,
}

#[derive(Clone, Debug)]
pub(crate) enum ReplicaEvent {
    /// The watch says what happened up to a revision.
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
    /// It asks an agent whether it is still there.
    Pings {
        session: SessionNumber,
    },
    OperatorAction(OperatorAction),
    /// What the rollout engine needs has been read, or is to be written now.
    PerformIo {
        who: IoClient,
        request: Box<IoRequest>,
    },
    /// A refused report has waited for the view long enough.
    CatchUpEnds {
        request: GroupRequest,
        revision: Revision,
    },
    /// The view did not come so far in time.
    ViewWaitExpired {
        who: IoClient,
        revision: Revision,
    },
    /// The checks of a gate are made.
    GateChecked(Box<GateRequest>),
}

#[derive(Clone, Debug)]
pub(crate) enum AgentEvent {
    Starts,
    Tick,
    /// A write that took long is done.
    DiskDone,
    Dials,
    Heard {
        session: SessionNumber,
        said: Box<StreamMessage>,
    },
    SessionLost {
        session: SessionNumber,
    },
    /// Nobody has said hello.
    OpeningTimedOut {
        session: SessionNumber,
    },
    SendsAgain {
        ticket: u64,
    },
    Answered {
        ticket: u64,
        answer: ReportAnswer,
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
    /// What was broken by itself is well again.
    Recovers,
}
