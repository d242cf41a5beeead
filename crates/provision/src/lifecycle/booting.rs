//! The machine is installed and is being switched on.

use muster_core::node::record::{MachinePhase, MachineStage};

use super::turn::Turn;
use super::{Decision, Step};
use crate::driver::Seen;

pub(super) fn decide(turn: &Turn<'_>) -> Decision {
    match &turn.facts.sight.seen {
        Seen::Absent => turn.replace(MachinePhase::Allocating, turn.record.attempt),
        Seen::Allocated => turn.replace(MachinePhase::Deploying, turn.record.attempt),
        Seen::Off => turn.step(Step::Boot),
        Seen::Running => turn.goto(MachinePhase::Bootstrapping),
        Seen::Underway { stage } => turn.underway(MachineStage::Booting, *stage),
        Seen::Broken { during, cause } => turn.broken(*during, cause),
        Seen::Unknown { cause } => turn.unknown(cause),
    }
}
