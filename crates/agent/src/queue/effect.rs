//! What the queue has done for it: everything that it can do to the world.

use std::sync::Arc;

use muster_core::lookup::snapshot::Snapshot;
use muster_core::node::status::Activity;
use muster_core::report::Report;
use muster_core::txn::Generation;

use muster_wire::sync::DesiredState;

use crate::ledger::{Ledger, RunningRun};
use crate::opening::Opening;
use crate::run::Order;

/// One thing to do. They are done in the order in which the mind gives them, and each is finished before the next begins: what
/// it was told is on disk before it acts on it because the writing stands before the acting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// End all that is left of a run that was cut off, and say [`Input::ProcessesEnded`](super::input::Input) when it is done.
    EndProcesses(Box<RunningRun>),
    /// Replace the ledger. It survives a power cut when this is done.
    SaveLedger(Box<Ledger>),
    /// Replace the snapshot. It need not survive a power cut yet: whatever reads it begins with a write of the ledger, in the
    /// same directory.
    SaveSnapshot(Arc<Snapshot>),
    /// Put a report into the outbox, in place of one with the same number. It survives a power cut when this is done.
    KeepReport(Box<Report>),
    /// There is something to send, or somebody to send it to.
    WakeSender,
    /// The server has given the other incarnation that the sender asked for, and [`Effect::Publish`] has told which.
    Renewed,
    /// Let whoever waits for what they said to be written go on.
    Acknowledge,
    /// Find out whether a release can be run without anybody's help, and say [`Input::LookedOnShelf`](super::input::Input).
    LookOnShelf(Box<DesiredState>),
    /// Tell the other tasks what there is to know.
    Publish(Box<Telling>),
    /// Begin. The slot is free: there is never a second order before the first one has come to its end.
    Give(Box<Order>),
}

/// What the other tasks know of the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telling {
    pub opening: Opening,
    pub activity: Activity,
    /// The generation of which it matters that a server takes a report: one on trial, from the start of its first run.
    pub awaited: Option<Generation>,
}
