//! The node is in the design, and nobody has looked for its machine yet. It may be there all the same.

use muster_core::node::record::{MachinePhase, MachineStage};

use super::Decision;
use super::turn::Turn;
use crate::driver::Seen;

pub(super) fn decide(turn: &Turn<'_>) -> Decision {
    match &turn.facts.sight.seen {
        Seen::Absent => turn.goto(MachinePhase::Allocating),
        Seen::Allocated => turn.goto(MachinePhase::Deploying),
        Seen::Off => turn.goto(MachinePhase::Booting),
        Seen::Running => turn.goto(MachinePhase::Bootstrapping),
        // It is wanted again: what is left of it is seen when that has ended.
        Seen::Underway { stage: MachineStage::Releasing } => {
            turn.underway(MachineStage::Allocating, MachineStage::Releasing)
        }
        Seen::Underway { stage } => turn.goto(stage.phase()),
        Seen::Broken { during, cause } => turn.broken(*during, cause),
        Seen::Unknown { cause } => turn.unknown(cause),
    }
}
