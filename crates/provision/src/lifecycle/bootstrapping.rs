//! The machine runs; its agent has not said hello yet.

use muster_core::node::record::{MachinePhase, MachineStage};

use super::turn::Turn;
use super::{Decision, FailureCause, HoldReason};
use crate::driver::MachineState;

pub(super) fn decide(turn: &Turn<'_>) -> Decision {
    match &turn.facts.observation.state {
        MachineState::Absent => turn.replace(MachinePhase::Allocating, turn.record.attempt),
        MachineState::Allocated => turn.replace(MachinePhase::Deploying, turn.record.attempt),
        // A connection that is left over from a machine that was switched off proves nothing.
        MachineState::Off => turn.goto(MachinePhase::Booting),
        MachineState::Broken { during, cause } => turn.broken(*during, cause),
        // Whoever speaks runs: for that, nobody else needs to be asked.
        MachineState::Running | MachineState::Unknown { .. } if turn.facts.agent_connected => {
            turn.goto(MachinePhase::Provisioned)
        }
        MachineState::Running => hello(turn),
        MachineState::Underway { stage } => turn.underway(MachineStage::Bootstrapping, *stage),
        MachineState::Unknown { cause } => turn.unknown(cause),
    }
}

fn hello(turn: &Turn<'_>) -> Decision {
    let until = turn.deadline(MachineStage::Bootstrapping);
    if turn.now >= until {
        let log = turn.facts.observation.log.clone();
        let cause = FailureCause::NoHello { within: turn.policy.bootstrapping, log };
        return turn.fail(MachineStage::Bootstrapping, cause);
    }
    turn.hold(HoldReason::AgentHello { until }, Some(until))
}
