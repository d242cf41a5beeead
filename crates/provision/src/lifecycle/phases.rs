//! Decisions of each phase of a machine, except `failed`.

use muster_core::node::record::{MachinePhase, MachineStage};

use super::context::DecisionContext;
use super::{Decision, Decommission, FailureCause, HoldReason, Step};
use crate::driver::MachineState;

/// The node is in the design, and its machine was never observed. It may exist nevertheless.
pub(super) fn declared(context: &DecisionContext<'_>) -> Decision {
    match &context.facts.observation.state {
        MachineState::Absent => context.goto(MachinePhase::Allocating),
        MachineState::Allocated => context.goto(MachinePhase::Deploying),
        MachineState::Off => context.goto(MachinePhase::Booting),
        MachineState::Running => context.goto(MachinePhase::Bootstrapping),
        // The node is needed again: wait for the end of the release.
        MachineState::Underway { stage: MachineStage::Releasing } => {
            context.underway(MachineStage::Allocating, MachineStage::Releasing)
        }
        MachineState::Underway { stage } => context.goto(stage.phase()),
        MachineState::Broken { during, cause } => context.broken(*during, cause),
        MachineState::Unknown { cause } => context.unknown(cause),
    }
}

/// A machine is being allocated.
pub(super) fn allocating(context: &DecisionContext<'_>) -> Decision {
    match &context.facts.observation.state {
        MachineState::Absent => context.step(Step::Allocate),
        MachineState::Allocated => context.goto(MachinePhase::Deploying),
        MachineState::Off => context.goto(MachinePhase::Booting),
        MachineState::Running => context.goto(MachinePhase::Bootstrapping),
        MachineState::Underway { stage } => context.underway(MachineStage::Allocating, *stage),
        MachineState::Broken { during, cause } => context.broken(*during, cause),
        MachineState::Unknown { cause } => context.unknown(cause),
    }
}

/// The machine is being installed.
pub(super) fn deploying(context: &DecisionContext<'_>) -> Decision {
    match &context.facts.observation.state {
        MachineState::Absent => context.goto(MachinePhase::Allocating),
        MachineState::Allocated => context.step(Step::Deploy),
        MachineState::Off => context.goto(MachinePhase::Booting),
        MachineState::Running => context.goto(MachinePhase::Bootstrapping),
        MachineState::Underway { stage } => context.underway(MachineStage::Deploying, *stage),
        MachineState::Broken { during, cause } => context.broken(*during, cause),
        MachineState::Unknown { cause } => context.unknown(cause),
    }
}

/// The machine is installed and is being powered on.
pub(super) fn booting(context: &DecisionContext<'_>) -> Decision {
    match &context.facts.observation.state {
        MachineState::Absent => context.replace(MachinePhase::Allocating, context.record.attempt),
        MachineState::Allocated => context.replace(MachinePhase::Deploying, context.record.attempt),
        MachineState::Off => context.step(Step::Boot),
        MachineState::Running => context.goto(MachinePhase::Bootstrapping),
        MachineState::Underway { stage } => context.underway(MachineStage::Booting, *stage),
        MachineState::Broken { during, cause } => context.broken(*during, cause),
        MachineState::Unknown { cause } => context.unknown(cause),
    }
}

/// The machine runs, and its agent has not connected yet.
pub(super) fn bootstrapping(context: &DecisionContext<'_>) -> Decision {
    match &context.facts.observation.state {
        MachineState::Absent => context.replace(MachinePhase::Allocating, context.record.attempt),
        MachineState::Allocated => context.replace(MachinePhase::Deploying, context.record.attempt),
        // A connection may be left over from before the machine was powered off.
        MachineState::Off => context.goto(MachinePhase::Booting),
        MachineState::Broken { during, cause } => context.broken(*during, cause),
        // A connected agent proves that the machine runs, also if its controller is unreachable.
        MachineState::Running | MachineState::Unknown { .. } if context.facts.agent_connected => {
            context.goto(MachinePhase::Provisioned)
        }
        MachineState::Running => wait_for_hello(context),
        MachineState::Underway { stage } => context.underway(MachineStage::Bootstrapping, *stage),
        MachineState::Unknown { cause } => context.unknown(cause),
    }
}

fn wait_for_hello(context: &DecisionContext<'_>) -> Decision {
    let until = context.deadline(MachineStage::Bootstrapping);
    if context.now >= until {
        let log = context.facts.observation.log.clone();
        let cause = FailureCause::NoHello { within: context.policy.bootstrapping, log };
        return context.fail(MachineStage::Bootstrapping, cause);
    }
    context.hold(HoldReason::AgentHello { until }, Some(until))
}

/// The agent has connected. From now on its reports give the state of the node; only the machine is observed here.
pub(super) fn provisioned(context: &DecisionContext<'_>) -> Decision {
    // A machine that fails soon after it came up keeps its count of attempts. Otherwise a machine that fails again and
    // again would be retried for ever.
    let up_for = context.now.duration_since(context.record.since);
    let attempt = if up_for >= context.policy.settled { 1 } else { context.record.attempt };
    match &context.facts.observation.state {
        MachineState::Running | MachineState::Underway { .. } => context.hold(HoldReason::Provisioned, None),
        MachineState::Off => Decision::Goto { phase: MachinePhase::Booting, attempt },
        MachineState::Absent => context.replace(MachinePhase::Allocating, attempt),
        MachineState::Allocated => context.replace(MachinePhase::Deploying, attempt),
        MachineState::Broken { during, cause } => {
            let cause = FailureCause::Broken { cause: cause.clone() };
            Decision::Fail { during: context.failed_stage(*during), cause, attempt }
        }
        MachineState::Unknown { cause } => context.unknown(cause),
    }
}

/// The node is being decommissioned. Its machine keeps running, for a limited time, until the nodes that depend on it have
/// run without it. The state of the machine does not matter.
pub(super) fn decommissioned(context: &DecisionContext<'_>, decommission: &Decommission) -> Decision {
    let Decommission { waits_for, until } = decommission;
    if waits_for.is_empty() || context.now >= *until {
        return Decision::Goto { phase: MachinePhase::Releasing, attempt: 1 };
    }
    let reason = HoldReason::OthersRunFirst { waits_for: waits_for.clone(), until: *until };
    Decision::Hold { reason, recheck: Some(*until) }
}

/// The machine is being released, with everything on it.
pub(super) fn releasing(context: &DecisionContext<'_>) -> Decision {
    match &context.facts.observation.state {
        MachineState::Absent => Decision::Retire,
        MachineState::Underway { stage: MachineStage::Releasing } => {
            context.underway(MachineStage::Releasing, MachineStage::Releasing)
        }
        MachineState::Broken { during: MachineStage::Releasing, cause } => {
            context.broken(MachineStage::Releasing, cause)
        }
        // Released from any state, also while another step is in progress.
        MachineState::Allocated
        | MachineState::Off
        | MachineState::Running
        | MachineState::Underway { .. }
        | MachineState::Broken { .. } => context.step(Step::Release),
        MachineState::Unknown { cause } => context.unknown(cause),
    }
}

/// The machine was being released, and the node is needed again: start again with whatever is left of the machine.
pub(super) fn needed_again() -> Decision {
    Decision::Goto { phase: MachinePhase::Declared, attempt: 1 }
}
