//! The planner: decides the next action for a machine from its record and its observed state.
//!
//! It is level-triggered: a step changes the machine, and the observed state changes the phase. Nothing is lost if the
//! process ends between the two, and a machine that was changed from outside (powered off, wiped, repaired) continues from
//! its observed state. The phase only changes by observation.
//!
//! ```text
//! declared ─▶ allocating ─▶ deploying ─▶ booting ─▶ bootstrapping ─▶ provisioned
//!                 │             │           │  ▲          │             │    │
//!                 └─────────────┴───────────┼──┼──────────┴─────────────│────┘ broken, refused, timed out
//!                                           ▼  └────────────────────────┘ powered off
//!                                         failed ─▶ retried a limited number of times, then stuck
//!
//! any of these ─▶ releasing ─▶ gone, with the record          the node is decommissioned
//!                     │ ▲
//!                     ▼ │        failed ─▶ retried until it succeeds
//! ```

mod context;
mod failed;
mod phases;
mod policy;
mod reason;

pub use context::{enter, fail};
pub use policy::Policy;
pub use reason::{FailureCause, HoldReason, StuckReason};

use jiff::Timestamp;

use muster_core::names::NodeName;
use muster_core::node::record::{MachinePhase, MachineRecord, MachineStage};

use crate::driver::MachineObservation;

/// A step of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Allocate,
    Deploy,
    Boot,
    Release,
}

impl Step {
    /// The stage that fails if this step fails.
    pub fn stage(self) -> MachineStage {
        match self {
            Step::Allocate => MachineStage::Allocating,
            Step::Deploy => MachineStage::Deploying,
            Step::Boot => MachineStage::Booting,
            Step::Release => MachineStage::Releasing,
        }
    }
}

/// The next action for a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Wait for a change, or until `recheck`.
    Hold { reason: HoldReason, recheck: Option<Timestamp> },
    /// Run this step, then observe again.
    Do { step: Step, attempt: u32 },
    /// Retry the failed step. If the driver accepts it, the machine enters that phase again.
    Retry { step: Step, attempt: u32 },
    /// Record this phase.
    Goto { phase: MachinePhase, attempt: u32 },
    /// Record that the attempt failed.
    Fail { during: MachineStage, cause: FailureCause, attempt: u32 },
    /// The machine of a decommissioned node is gone: delete everything about the node.
    Retire,
    /// An operator has to act.
    Stuck { reason: StuckReason },
}

/// Current facts about a machine, besides its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    pub observation: MachineObservation,
    /// The node's agent is connected.
    pub agent_connected: bool,
    /// Set if the node is being decommissioned.
    pub leaving: Option<Decommission>,
}

/// The decommissioning of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decommission {
    /// Nodes that have not run without it yet.
    pub waits_for: Vec<NodeName>,
    /// Deadline of the wait.
    pub until: Timestamp,
}

/// Decides the next action. `record` is `None` for a new node.
pub fn decide(record: Option<&MachineRecord>, facts: &MachineFacts, policy: &Policy, now: Timestamp) -> Decision {
    let Some(record) = record else { return Decision::Goto { phase: MachinePhase::Declared, attempt: 1 } };
    let context = context::DecisionContext { record, facts, policy, now };
    match (&facts.leaving, &record.phase) {
        (Some(_), phase) if phase.is_releasing() => {}
        (Some(decommission), _) => return phases::decommissioned(&context, decommission),
        (None, phase) if phase.is_releasing() => return phases::needed_again(),
        (None, _) => {}
    }
    match &record.phase {
        MachinePhase::Declared => phases::declared(&context),
        MachinePhase::Allocating => phases::allocating(&context),
        MachinePhase::Deploying => phases::deploying(&context),
        MachinePhase::Booting => phases::booting(&context),
        MachinePhase::Bootstrapping => phases::bootstrapping(&context),
        MachinePhase::Provisioned => phases::provisioned(&context),
        MachinePhase::Failed { during, cause, retry } => failed::decide(&context, *during, cause, *retry),
        MachinePhase::Releasing => phases::releasing(&context),
    }
}
