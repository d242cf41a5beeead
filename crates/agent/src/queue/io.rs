//! Inputs and effects of the queue's state machine.

use std::sync::Arc;

use jiff::Timestamp;

use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{HostName, Role, RunId};
use muster_core::node::pause::NodePause;
use muster_core::node::status::Activity;
use muster_core::report::{HookResult, Outcome, Report};
use muster_core::txn::Generation;
use muster_wire::sync::{DesiredState, RequestedRun};

use crate::report::unsent::UnsentReport;
use crate::run::WorkOrder;
use crate::state::ledger::{AppliedRelease, Ledger, PreviousRun};
use crate::sync::handshake::SyncState;

/// An event from the sync task, the run task, the report sender or the clock. Plain data: it takes effect when the state
/// machine has handled it and its effects were carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The agent has started with the state on its disk. Always the first input.
    Started,
    /// The time of [`RunQueue::wake_at`](super::state_machine::RunQueue::wake_at) has come. An early one is a no-op.
    Tick,

    Hello {
        incarnation: u64,
        role: Role,
        /// Host name in the design.
        host_name: Option<HostName>,
        /// The server's time.
        now: Timestamp,
        /// The stream was opened to request a new incarnation.
        renewed: bool,
    },
    /// The server refuses this agent, because another one with the name of this node is connected. No run starts until the
    /// next hello.
    Duplicate,
    Desired(DesiredState),
    Snapshot(Arc<Snapshot>),
    Pause(Option<NodePause>),
    RunRequested(RequestedRun),
    /// The node has other addresses.
    AddressesChanged,

    /// The applier succeeded. The run continues when this is acknowledged.
    Configured {
        report: Box<UnsentReport>,
        applied: Box<AppliedRelease>,
    },
    /// The hooks succeeded, and the processes that they started are kept. The checks begin when this is acknowledged.
    HooksSucceeded,
    /// A run has ended.
    Finished {
        report: Box<UnsentReport>,
        last: Box<PreviousRun>,
    },
    /// A preview has ended.
    Previewed {
        report: Box<UnsentReport>,
    },
    /// A periodic validation has ended; `None` if it could not be made.
    Validated {
        report: Option<Box<UnsentReport>>,
    },
    /// Hooks have ended, and the checks after them.
    HooksFinished {
        report: Box<UnsentReport>,
        results: Vec<HookResult>,
    },
    /// The work has ended before it changed anything, because a newer desired state has arrived during its download. It is
    /// not reported: its causes lead to the next run.
    Superseded,
    /// A server has accepted a report of the generation in [`QueueStatus::awaited`]. The sender removes the report from
    /// the outbox when this is acknowledged.
    ReportAccepted(AcceptedReport),
    /// The answer to [`Effect::CheckRelease`].
    ReleaseChecked {
        /// Reason that the release cannot be used; `None` if it can.
        problem: Option<String>,
    },
    /// Adopted work has no result and is not reported: the applier of a run was never started, or it was other work, which
    /// has been ended.
    NotContinued,
    /// The agent shuts down, and the work in progress is left to the next agent.
    Interrupted,
}

/// The part of an accepted report that the queue needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedReport {
    pub run: RunId,
    pub generation: Generation,
    pub outcome: Outcome,
}

impl From<&Report> for AcceptedReport {
    fn from(report: &Report) -> Self {
        Self { run: report.run.clone(), generation: report.generation, outcome: report.outcome }
    }
}

impl From<&UnsentReport> for AcceptedReport {
    fn from(report: &UnsentReport) -> Self {
        Self { run: report.run.clone(), generation: report.generation, outcome: report.outcome }
    }
}

/// An action of the queue. Effects are carried out in order, each completed before the next begins. State is on disk
/// before the agent acts on it because the effect that writes comes before the effect that acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Replace the ledger, durably.
    SaveLedger(Box<Ledger>),
    /// Replace the snapshot. It need not be durable yet: every reader of it is preceded by a write of the ledger, in the
    /// same directory.
    SaveSnapshot(Arc<Snapshot>),
    /// Write a report to the outbox, durably, replacing one with the same sequence number.
    StoreReport(Box<UnsentReport>),
    /// Wake the report sender: there is a new report, or a server is connected.
    WakeSender,
    /// Complete the request for a new incarnation. The preceding [`Effect::Publish`] carries the new one.
    IncarnationRenewed,
    /// Acknowledge the input to the task that sent it.
    Acknowledge,
    /// Check whether a release can run without a server, then send [`Input::ReleaseChecked`].
    CheckRelease(Box<DesiredState>),
    /// Publish the status of the queue to the other tasks.
    Publish(Box<QueueStatus>),
    /// Start work. The slot is free: the previous order has ended.
    StartWork(Box<WorkOrder>),
    /// Continue the work that an earlier agent has started. A run continues as if nothing had happened; other work is
    /// ended, and the answer is [`Input::NotContinued`].
    AdoptWork(Box<WorkOrder>),
}

/// Status of the queue for the other tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStatus {
    pub sync_state: SyncState,
    pub activity: Activity,
    /// The generation that waits for a server to accept one of its reports; see [`super::auto_rollback`].
    pub awaited: Option<Generation>,
    /// Validations since the start, if the agent has started with one.
    pub validations: u64,
}
