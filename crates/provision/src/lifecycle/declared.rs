//! The node is in the design, and nobody has looked for its machine yet. It may be there all the same.

use muster_core::node::record::{MachinePhase, MachineStage};

use super::Decision;
use super::turn::Turn;
use crate::driver::MachineState;

pub(super) fn decide(turn: &Turn<'_>) -> Decision {
    match &turn.facts.observation.state {
        MachineState::Absent => turn.goto(MachinePhase::Allocating),
        MachineState::Allocated => turn.goto(MachinePhase::Deploying),
        MachineState::Off => turn.goto(MachinePhase::Booting),
        MachineState::Running => turn.goto(MachinePhase::Bootstrapping),
        // It is wanted again: what is left of it is seen when that has ended.
        MachineState::Underway { stage: MachineStage::Releasing } => {
            turn.underway(MachineStage::Allocating, MachineStage::Releasing)
        }
        MachineState::Underway { stage } => turn.goto(stage.phase()),
        MachineState::Broken { during, cause } => turn.broken(*during, cause),
        MachineState::Unknown { cause } => turn.unknown(cause),
    }
}
