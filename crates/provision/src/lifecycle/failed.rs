//! The last attempt did not end well. After a pause the next one goes on from where the machine is, some times.

use jiff::Timestamp;

use muster_core::node::record::{MachinePhase, MachineStage};

use super::policy::after;
use super::turn::Turn;
use super::{Decision, HoldReason, Step, StuckReason};
use crate::driver::MachineState;

pub(super) fn decide(turn: &Turn<'_>, during: MachineStage, cause: &str, retry: Option<Timestamp>) -> Decision {
    let seen = &turn.facts.observation.state;
    // It is gone after all.
    if during == MachineStage::Releasing && *seen == MachineState::Absent {
        return Decision::Retire;
    }
    // It came up after all: an agent that took longer, or somebody who helped.
    if during != MachineStage::Releasing && turn.facts.agent_connected && *seen == MachineState::Running {
        return turn.goto(MachinePhase::Provisioned);
    }
    if turn.policy.retry_old_failures && turn.record.since < turn.policy.serving_since {
        return again(turn, during, 1);
    }
    let attempt = turn.record.attempt;
    let next = attempt.saturating_add(1);
    match retry {
        None => Decision::Stuck { reason: StuckReason::GaveUp { during, cause: cause.to_owned(), attempt } },
        Some(at) if turn.now < at => turn.hold(HoldReason::NextAttempt { attempt: next, at }, Some(at)),
        Some(_) => again(turn, during, next),
    }
}

/// To repeat a step mends what it left broken. A machine that runs with a silent agent is given the time to speak once
/// more: to switch off one that may be about to do so would make things worse.
fn again(turn: &Turn<'_>, during: MachineStage, attempt: u32) -> Decision {
    if during == MachineStage::Releasing {
        return Decision::Retry { step: Step::Release, attempt };
    }
    match &turn.facts.observation.state {
        MachineState::Absent if was_installed(during) => turn.replace(MachinePhase::Allocating, attempt),
        MachineState::Allocated if was_installed(during) => turn.replace(MachinePhase::Deploying, attempt),
        MachineState::Absent => Decision::Retry { step: Step::Allocate, attempt },
        MachineState::Allocated => Decision::Retry { step: Step::Deploy, attempt },
        MachineState::Off => Decision::Retry { step: Step::Boot, attempt },
        MachineState::Running => Decision::Goto { phase: MachinePhase::Bootstrapping, attempt },
        MachineState::Underway { stage: MachineStage::Releasing } => turn.hold(
            HoldReason::StepUnderway { stage: MachineStage::Releasing },
            Some(after(turn.now, turn.policy.retry_first)),
        ),
        MachineState::Underway { stage } => Decision::Goto { phase: stage.phase(), attempt },
        MachineState::Broken { during, .. } => Decision::Retry { step: mending(*during), attempt },
        // To ask for anything now would fail for a reason of its own.
        MachineState::Unknown { cause } => turn.unknown(cause),
    }
}

fn was_installed(during: MachineStage) -> bool {
    match during {
        MachineStage::Allocating | MachineStage::Deploying => false,
        MachineStage::Booting | MachineStage::Bootstrapping => true,
        // Such a failure is not tried again as one of a machine that is wanted.
        MachineStage::Releasing => false,
    }
}

fn mending(broken: MachineStage) -> Step {
    match broken {
        MachineStage::Allocating => Step::Allocate,
        MachineStage::Deploying => Step::Deploy,
        MachineStage::Booting | MachineStage::Bootstrapping => Step::Boot,
        MachineStage::Releasing => Step::Release,
    }
}
