//! The planner: from how a machine is recorded and how it is seen to the one next thing. Pure; time is an argument.
//!
//! It is level-triggered: a step changes the machine, what is seen of it changes the phase. So nothing is lost when a
//! process ends between the two, and a machine that somebody else has moved (switched off, wiped, repaired) is taken
//! from where it is. Going back is always by what was seen; going on without seeing anything never happens.
//!
//! ```text
//! declared ─▶ allocating ─▶ deploying ─▶ booting ─▶ bootstrapping ─▶ provisioned
//!                 │             │           │  ▲          │             │    │
//!                 └─────────────┴───────────┼──┼──────────┴─────────────│────┘ seen broken, refused, too late
//!                                           ▼  └────────────────────────┘ seen switched off
//!                                         failed ─▶ what failed is tried again, some times, or it is stuck
//!
//! any of these ─▶ releasing ─▶ gone, with the record          the node leaves, and nobody needs it any more
//!                     │ ▲
//!                     ▼ │        failed ─▶ tried again until it is done
//! ```

mod allocating;
mod booting;
mod bootstrapping;
mod declared;
mod deploying;
mod failed;
mod leaving;
mod policy;
mod provisioned;
mod reason;
mod releasing;
mod returned;
mod turn;

pub use policy::Policy;
pub use reason::{FailureCause, HoldReason, StuckReason};
pub use turn::{enter, fail};

use jiff::Timestamp;

use muster_core::names::NodeName;
use muster_core::node::record::{MachinePhase, MachineRecord, MachineStage};

use crate::driver::MachineObservation;

/// What is to be asked of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Allocate,
    Deploy,
    Boot,
    Release,
}

impl Step {
    /// What fails when this fails.
    pub fn stage(self) -> MachineStage {
        match self {
            Step::Allocate => MachineStage::Allocating,
            Step::Deploy => MachineStage::Deploying,
            Step::Boot => MachineStage::Booting,
            Step::Release => MachineStage::Releasing,
        }
    }
}

/// The one next thing for a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing, until something changes, or until `recheck`.
    Hold { reason: HoldReason, recheck: Option<Timestamp> },
    /// Ask the driver for this, and look again.
    Do { step: Step, attempt: u32 },
    /// Ask the driver once more for what failed; when it accepts, the machine is in that phase again.
    Retry { step: Step, attempt: u32 },
    /// Record that the machine is in this phase.
    Goto { phase: MachinePhase, attempt: u32 },
    /// Record that the attempt has failed.
    Fail { during: MachineStage, cause: FailureCause, attempt: u32 },
    /// There is no machine any more for a node that leaves: everything that is known of it goes.
    Retire,
    /// Nothing that Muster may do by itself helps.
    Stuck { reason: StuckReason },
}

/// What is known of a machine at this moment, besides its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub observation: MachineObservation,
    /// Whether the node's agent is connected.
    pub agent_connected: bool,
    /// The node leaves, and waits for these.
    pub leaving: Option<Decommission>,
}

/// A node that leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decommission {
    /// Those who have yet to run without it.
    pub waits_for: Vec<NodeName>,
    /// At the latest until then.
    pub until: Timestamp,
}

/// Decides. `record` is none for a node whose machine nobody has begun with.
pub fn decide(record: Option<&MachineRecord>, facts: &Facts, policy: &Policy, now: Timestamp) -> Decision {
    let Some(record) = record else { return Decision::Goto { phase: MachinePhase::Declared, attempt: 1 } };
    let turn = turn::Turn { record, facts, policy, now };
    match (&facts.leaving, &record.phase) {
        (Some(_), phase) if phase.is_releasing() => {}
        (Some(departure), _) => return leaving::decide(&turn, departure),
        (None, phase) if phase.is_releasing() => return returned::decide(),
        (None, _) => {}
    }
    match &record.phase {
        MachinePhase::Declared => declared::decide(&turn),
        MachinePhase::Allocating => allocating::decide(&turn),
        MachinePhase::Deploying => deploying::decide(&turn),
        MachinePhase::Booting => booting::decide(&turn),
        MachinePhase::Bootstrapping => bootstrapping::decide(&turn),
        MachinePhase::Provisioned => provisioned::decide(&turn),
        MachinePhase::Failed { during, cause, retry } => failed::decide(&turn, *during, cause, *retry),
        MachinePhase::Releasing => releasing::decide(&turn),
    }
}
