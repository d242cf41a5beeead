//! What the machine starts with is being put on it.

use muster_core::node::record::{MachinePhase, MachineStage};

use super::turn::Turn;
use super::{Decision, Step};
use crate::driver::MachineState;

pub(super) fn decide(turn: &Turn<'_>) -> Decision {
    match &turn.facts.observation.state {
        MachineState::Absent => turn.goto(MachinePhase::Allocating),
        MachineState::Allocated => turn.step(Step::Deploy),
        MachineState::Off => turn.goto(MachinePhase::Booting),
        MachineState::Running => turn.goto(MachinePhase::Bootstrapping),
        MachineState::Underway { stage } => turn.underway(MachineStage::Deploying, *stage),
        MachineState::Broken { during, cause } => turn.broken(*during, cause),
        MachineState::Unknown { cause } => turn.unknown(cause),
    }
}
