//! What the machine starts with is being put on it.

use muster_core::node::record::{MachinePhase, MachineStage};

use super::turn::Turn;
use super::{Decision, Step};
use crate::driver::Seen;

pub(super) fn decide(turn: &Turn<'_>) -> Decision {
    match &turn.facts.sight.seen {
        Seen::Absent => turn.goto(MachinePhase::Allocating),
        Seen::Allocated => turn.step(Step::Deploy),
        Seen::Off => turn.goto(MachinePhase::Booting),
        Seen::Running => turn.goto(MachinePhase::Bootstrapping),
        Seen::Underway { stage } => turn.underway(MachineStage::Deploying, *stage),
        Seen::Broken { during, cause } => turn.broken(*during, cause),
        Seen::Unknown { cause } => turn.unknown(cause),
    }
}
