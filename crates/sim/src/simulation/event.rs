//! Everything that can happen, as data. Who is addressed is named with the life that it lives at that time: what was meant for
//! a process that has died since reaches nobody.

use muster_agent::report::dispatch::ReportAnswer;
use muster_core::names::NodeName;
use muster_core::node::status::Activity;
use muster_core::report::Report;
use muster_core::txn::{Revision, Txn};
use muster_rollout::executor::{Need, Question};
use muster_wire::sync::SyncOpen;

use super::network::Said;
use super::operator::Wish;
use super::replica::Needy;
use super::replica::calls::{Answer, Call, Request};
use super::replica::chore::Chore;
use super::replica::reports::GroupRequest;
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
    Strike,
    ReplicaStarts {
        replica: ReplicaNumber,
        life: u64,
    },
    CutOffEnds {
        machine: MachineNumber,
        number: u64,
    },
    /// Both ends of a connection over which nothing comes any more give it up.
    Unheard {
        session: SessionNumber,
    },
    Operator(Wish),
    /// The design grows by a node, or one leaves it, and is gone.
    Joins,
    Leaves {
        node: NodeName,
    },
    Gone {
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
    Told {
        watch: u64,
        upto: Revision,
    },
    Answered {
        call: Call,
        answer: Answer,
    },
    Due(Chore),
    Opened {
        session: SessionNumber,
        open: Box<SyncOpen>,
    },
    Acts {
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
    Wished(Wish),
    /// What the rollout engine needs has been read, or is to be written now.
    Brings {
        who: Needy,
        need: Box<Need>,
    },
    /// A refused report has waited for the view long enough.
    CatchUpEnds {
        request: GroupRequest,
        revision: Revision,
    },
    /// The view did not come so far in time.
    StopsWaiting {
        who: Needy,
        revision: Revision,
    },
    /// The checks of a gate are made.
    Checked(Box<Question>),
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
        said: Box<Said>,
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
    Mends,
}
