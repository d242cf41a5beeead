//! The agent has said hello. From here the node's reports speak for it; only the machine is watched.

use muster_core::node::record::MachinePhase;

use super::turn::Turn;
use super::{Decision, FailureCause, HoldReason};
use crate::driver::MachineState;

pub(super) fn decide(turn: &Turn<'_>) -> Decision {
    let attempt = attempt(turn);
    match &turn.facts.observation.state {
        MachineState::Running | MachineState::Underway { .. } => turn.hold(HoldReason::Provisioned, None),
        MachineState::Off => Decision::Goto { phase: MachinePhase::Booting, attempt },
        MachineState::Absent => turn.replace(MachinePhase::Allocating, attempt),
        MachineState::Allocated => turn.replace(MachinePhase::Deploying, attempt),
        MachineState::Broken { during, cause } => {
            let cause = FailureCause::SeenBroken { cause: cause.clone() };
            Decision::Fail { during: turn.failing(*during), cause, attempt }
        }
        MachineState::Unknown { cause } => turn.unknown(cause),
    }
}

/// A machine that falls over soon after it came up has not made good its earlier failures: else one that does so again
/// and again would never be given up.
fn attempt(turn: &Turn<'_>) -> u32 {
    let up_for = turn.now.duration_since(turn.record.since);
    if up_for >= turn.policy.settled { 1 } else { turn.record.attempt }
}
