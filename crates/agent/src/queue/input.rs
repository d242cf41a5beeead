//! What the queue is told: everything that can happen to it.

use std::sync::Arc;

use jiff::Timestamp;

use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{Role, RunId};
use muster_core::node::pause::NodePause;
use muster_core::report::{HookResult, Outcome, Report};
use muster_core::txn::Generation;
use muster_wire::sync::DesiredState;

use crate::ledger::{AppliedRelease, LastRun};

/// What sync, run and the clock say. Plain data: nothing of it has an effect before the mind has taken it, and what the mind
/// made of it has been carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The agent has started, with what it found on its disk. The first of all.
    Started,
    /// Nothing is left of the run that was cut off: the answer to [`Effect::EndProcesses`](super::effect::Effect).
    ProcessesEnded,
    /// The moment of [`Mind::wake_at`](super::mind::Mind::wake_at) has come. One that comes for nothing does no harm.
    Tick,

    Hello {
        incarnation: u64,
        role: Role,
        /// What time it is for the server.
        now: Timestamp,
        /// The stream was opened to ask for another incarnation.
        renewed: bool,
    },
    Desired(DesiredState),
    Snapshot(Arc<Snapshot>),
    Pause(Option<NodePause>),
    RunAsked {
        id: String,
        by: String,
        /// Only to say what it would do.
        noop: bool,
    },

    /// The applier ended well. The run goes on when this is acknowledged.
    Configured {
        report: Box<Report>,
        applied: Box<AppliedRelease>,
    },
    /// The hooks have ended well, and what they have started is meant to stay. The checks begin when this is acknowledged.
    HooksEnded,
    /// A run is over.
    Finished {
        report: Box<Report>,
        last: Box<LastRun>,
    },
    /// A preview is over.
    Previewed {
        report: Box<Report>,
    },
    /// A validation on its own is over; none if it could not be made.
    Validated {
        report: Option<Box<Report>>,
    },
    /// Hooks are over, and the checks after them.
    HooksRun {
        report: Box<Report>,
        results: Vec<HookResult>,
    },
    /// A server has taken a report of a generation that is awaited. It may be forgotten when this is acknowledged.
    Taken(TakenReport),
    /// Whether a release is on the node: the answer to [`Effect::LookOnShelf`](super::effect::Effect).
    LookedOnShelf {
        /// Why it cannot be used.
        problem: Option<String>,
    },
    /// The agent is to end, and so what went on was ended.
    Interrupted,
}

/// What matters of a report that a server has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenReport {
    pub run: RunId,
    pub generation: Generation,
    pub outcome: Outcome,
}

impl From<&Report> for TakenReport {
    fn from(report: &Report) -> Self {
        Self { run: report.run.clone(), generation: report.generation, outcome: report.outcome }
    }
}
