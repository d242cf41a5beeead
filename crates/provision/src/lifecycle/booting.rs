//! The machine is installed and is being switched on.

use muster_core::node::record::{MachinePhase, MachineStage};

use super::turn::Turn;
use super::{Decision, Step};
use crate::driver::MachineState;

pub(super) fn decide(turn: &Turn<'_>) -> Decision {
    match &turn.facts.observation.state {
        MachineState::Absent => turn.replace(MachinePhase::Allocating, turn.record.attempt),
        MachineState::Allocated => turn.replace(MachinePhase::Deploying, turn.record.attempt),
        MachineState::Off => turn.step(Step::Boot),
        MachineState::Running => turn.goto(MachinePhase::Bootstrapping),
        MachineState::Underway { stage } => turn.underway(MachineStage::Booting, *stage),
        MachineState::Broken { during, cause } => turn.broken(*during, cause),
        MachineState::Unknown { cause } => turn.unknown(cause),
    }
}
