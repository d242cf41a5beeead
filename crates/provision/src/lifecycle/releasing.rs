//! The machine is being given back, with all that is on it.

use muster_core::node::record::MachineStage;

use super::turn::Turn;
use super::{Decision, Step};
use crate::driver::MachineState;

pub(super) fn decide(turn: &Turn<'_>) -> Decision {
    match &turn.facts.observation.state {
        MachineState::Absent => Decision::Retire,
        MachineState::Underway { stage: MachineStage::Releasing } => {
            turn.underway(MachineStage::Releasing, MachineStage::Releasing)
        }
        MachineState::Broken { during: MachineStage::Releasing, cause } => turn.broken(MachineStage::Releasing, cause),
        // Whatever state it is in, and whatever else is under way: it is given back.
        MachineState::Allocated
        | MachineState::Off
        | MachineState::Running
        | MachineState::Underway { .. }
        | MachineState::Broken { .. } => turn.step(Step::Release),
        MachineState::Unknown { cause } => turn.unknown(cause),
    }
}
