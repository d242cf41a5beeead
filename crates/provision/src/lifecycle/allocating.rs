//! A machine is being made the node's own.

use muster_core::node::record::{MachinePhase, MachineStage};

use super::turn::Turn;
use super::{Decision, Step};
use crate::driver::Seen;

pub(super) fn decide(turn: &Turn<'_>) -> Decision {
    match &turn.facts.sight.seen {
        Seen::Absent => turn.step(Step::Allocate),
        Seen::Allocated => turn.goto(MachinePhase::Deploying),
        Seen::Off => turn.goto(MachinePhase::Booting),
        Seen::Running => turn.goto(MachinePhase::Bootstrapping),
        Seen::Underway { stage } => turn.underway(MachineStage::Allocating, *stage),
        Seen::Broken { during, cause } => turn.broken(*during, cause),
        Seen::Unknown { cause } => turn.unknown(cause),
    }
}
