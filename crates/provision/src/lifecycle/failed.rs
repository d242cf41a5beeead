//! Decision of the phase `failed`: retries after a pause, a limited number of times, from the observed state.

use jiff::Timestamp;

use muster_core::node::record::{MachinePhase, MachineStage};

use super::context::DecisionContext;
use super::policy::after;
use super::{Decision, HoldReason, Step, StuckReason};
use crate::driver::MachineState;

pub(super) fn decide(
    context: &DecisionContext<'_>,
    during: MachineStage,
    cause: &str,
    retry: Option<Timestamp>,
) -> Decision {
    let seen = &context.facts.observation.state;
    // The release has succeeded after all.
    if during == MachineStage::Releasing && *seen == MachineState::Absent {
        return Decision::Retire;
    }
    // The machine came up after all: a slow agent, or a manual repair.
    if during != MachineStage::Releasing && context.facts.agent_connected && *seen == MachineState::Running {
        return context.goto(MachinePhase::Provisioned);
    }
    if context.policy.retry_old_failures && context.record.since < context.policy.serving_since {
        return retry_from(context, during, 1);
    }
    let attempt = context.record.attempt;
    let next = attempt.saturating_add(1);
    match retry {
        None => Decision::Stuck { reason: StuckReason::GaveUp { during, cause: cause.to_owned(), attempt } },
        Some(at) if context.now < at => context.hold(HoldReason::NextAttempt { attempt: next, at }, Some(at)),
        Some(_) => retry_from(context, during, next),
    }
}

/// Retries from the observed state. A running machine without a connected agent gets its time once more: powering it off
/// could interrupt an agent that is about to connect.
fn retry_from(context: &DecisionContext<'_>, during: MachineStage, attempt: u32) -> Decision {
    if during == MachineStage::Releasing {
        return Decision::Retry { step: Step::Release, attempt };
    }
    match &context.facts.observation.state {
        MachineState::Absent if was_installed(during) => context.replace(MachinePhase::Allocating, attempt),
        MachineState::Allocated if was_installed(during) => context.replace(MachinePhase::Deploying, attempt),
        MachineState::Absent => Decision::Retry { step: Step::Allocate, attempt },
        MachineState::Allocated => Decision::Retry { step: Step::Deploy, attempt },
        MachineState::Off => Decision::Retry { step: Step::Boot, attempt },
        MachineState::Running => Decision::Goto { phase: MachinePhase::Bootstrapping, attempt },
        MachineState::Underway { stage: MachineStage::Releasing } => context.hold(
            HoldReason::StepUnderway { stage: MachineStage::Releasing },
            Some(after(context.now, context.policy.retry_first)),
        ),
        MachineState::Underway { stage } => Decision::Goto { phase: stage.phase(), attempt },
        MachineState::Broken { during, .. } => Decision::Retry { step: repair_step(*during), attempt },
        // A step would fail because of the controller.
        MachineState::Unknown { cause } => context.unknown(cause),
    }
}

fn was_installed(during: MachineStage) -> bool {
    match during {
        MachineStage::Allocating | MachineStage::Deploying => false,
        MachineStage::Booting | MachineStage::Bootstrapping => true,
        // Not reached for a node that is needed.
        MachineStage::Releasing => false,
    }
}

fn repair_step(broken: MachineStage) -> Step {
    match broken {
        MachineStage::Allocating => Step::Allocate,
        MachineStage::Deploying => Step::Deploy,
        MachineStage::Booting | MachineStage::Bootstrapping => Step::Boot,
        MachineStage::Releasing => Step::Release,
    }
}
