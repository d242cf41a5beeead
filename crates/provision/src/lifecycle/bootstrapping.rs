//! The machine runs; its agent has not said hello yet.

use muster_core::node::record::{MachinePhase, MachineStage};

use super::turn::Turn;
use super::{Decision, FailureCause, HoldReason};
use crate::driver::Seen;

pub(super) fn decide(turn: &Turn<'_>) -> Decision {
    match &turn.facts.sight.seen {
        Seen::Absent => turn.replace(MachinePhase::Allocating, turn.record.attempt),
        Seen::Allocated => turn.replace(MachinePhase::Deploying, turn.record.attempt),
        // A connection that is left over from a machine that was switched off proves nothing.
        Seen::Off => turn.goto(MachinePhase::Booting),
        Seen::Broken { during, cause } => turn.broken(*during, cause),
        // Whoever speaks runs: for that, nobody else needs to be asked.
        Seen::Running | Seen::Unknown { .. } if turn.facts.agent_connected => turn.goto(MachinePhase::Provisioned),
        Seen::Running => hello(turn),
        Seen::Underway { stage } => turn.underway(MachineStage::Bootstrapping, *stage),
        Seen::Unknown { cause } => turn.unknown(cause),
    }
}

fn hello(turn: &Turn<'_>) -> Decision {
    let until = turn.deadline(MachineStage::Bootstrapping);
    if turn.now >= until {
        let log = turn.facts.sight.log.clone();
        let cause = FailureCause::NoHello { within: turn.policy.bootstrapping, log };
        return turn.fail(MachineStage::Bootstrapping, cause);
    }
    turn.hold(HoldReason::AgentHello { until }, Some(until))
}
