//! The machine is being given back, with all that is on it.

use muster_core::node::record::MachineStage;

use super::turn::Turn;
use super::{Decision, Step};
use crate::driver::Seen;

pub(super) fn decide(turn: &Turn<'_>) -> Decision {
    match &turn.facts.sight.seen {
        Seen::Absent => Decision::Retire,
        Seen::Underway { stage: MachineStage::Releasing } => {
            turn.underway(MachineStage::Releasing, MachineStage::Releasing)
        }
        Seen::Broken { during: MachineStage::Releasing, cause } => turn.broken(MachineStage::Releasing, cause),
        // Whatever state it is in, and whatever else is under way: it is given back.
        Seen::Allocated | Seen::Off | Seen::Running | Seen::Underway { .. } | Seen::Broken { .. } => {
            turn.step(Step::Release)
        }
        Seen::Unknown { cause } => turn.unknown(cause),
    }
}
