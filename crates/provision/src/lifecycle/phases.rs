//! Decisions of each phase of a machine, and the records that they lead to.

use jiff::Timestamp;
use muster_core::node::record::{MachinePhase, MachineRecord, MachineStage};
use muster_core::report::summary::clip;

use crate::driver::MachineState;

use super::policy::after;
use super::{FailureCause, MachineDecision, MachineFacts, MachineHoldReason, MachineStep, PendingDecommission, Policy};

/// Length of a cause, which is shown in listings. The log has the details.
const MAX_CAUSE: usize = 2048;

/// Inputs of one decision.
pub(super) struct DecisionContext<'a> {
    pub record: &'a MachineRecord,
    pub facts: &'a MachineFacts,
    pub policy: &'a Policy,
    pub now: Timestamp,
}

impl DecisionContext<'_> {
    /// Enter another phase in the same attempt.
    fn goto(&self, phase: MachinePhase) -> MachineDecision {
        MachineDecision::Goto { phase, attempt: self.record.attempt }
    }

    fn fail(&self, during: MachineStage, cause: FailureCause) -> MachineDecision {
        MachineDecision::Fail { during, cause, attempt: self.record.attempt }
    }

    fn broken(&self, during: MachineStage, cause: &str) -> MachineDecision {
        self.fail(self.failed_stage(during), FailureCause::Broken { cause: cause.to_owned() })
    }

    /// The stage that a broken machine has failed in. If it could not be released, the allocation fails for a node that is
    /// needed.
    fn failed_stage(&self, during: MachineStage) -> MachineStage {
        match during {
            MachineStage::Releasing if self.facts.leaving.is_none() => MachineStage::Allocating,
            MachineStage::Allocating
            | MachineStage::Deploying
            | MachineStage::Booting
            | MachineStage::Bootstrapping
            | MachineStage::Releasing => during,
        }
    }

    /// Run a step, unless its stage has timed out.
    fn step(&self, step: MachineStep) -> MachineDecision {
        if self.now >= self.deadline(step.stage()) {
            return self.timed_out(step.stage());
        }
        MachineDecision::Do { step, attempt: self.record.attempt }
    }

    /// Wait for a step in progress, unless the stage has timed out.
    fn underway(&self, waiting_in: MachineStage, underway: MachineStage) -> MachineDecision {
        if self.now >= self.deadline(waiting_in) {
            return self.timed_out(waiting_in);
        }
        self.hold(MachineHoldReason::StepUnderway { stage: underway }, Some(self.deadline(waiting_in)))
    }

    /// Wait for the machine's controller, without a deadline: the state of the machine is unknown.
    fn unknown(&self, cause: &str) -> MachineDecision {
        let soon = after(self.now, self.policy.retry_first);
        self.hold(MachineHoldReason::ControllerSilent { cause: cause.to_owned() }, Some(soon))
    }

    /// Wait until `then`, or for the poll interval if the driver does not report changes.
    fn hold(&self, reason: MachineHoldReason, then: Option<Timestamp>) -> MachineDecision {
        let poll = self.policy.poll_interval.map(|pause| after(self.now, pause));
        MachineDecision::Hold { reason, recheck: then.into_iter().chain(poll).min() }
    }

    /// The content of the machine is lost. It is created again only if the policy allows it.
    fn replace(&self, phase: MachinePhase, attempt: u32) -> MachineDecision {
        if self.policy.replace_lost {
            MachineDecision::Goto { phase, attempt }
        } else {
            MachineDecision::Hold { reason: MachineHoldReason::Lost, recheck: None }
        }
    }

    /// Deadline of a stage. Time before the controller started does not count.
    fn deadline(&self, stage: MachineStage) -> Timestamp {
        after(self.record.since.max(self.policy.serving_since), self.policy.limit(stage))
    }

    fn timed_out(&self, stage: MachineStage) -> MachineDecision {
        self.fail(stage, FailureCause::Timeout { within: self.policy.limit(stage) })
    }
}

/// The node is in the design, and its machine was never observed. It may exist nevertheless.
pub(super) fn declared(context: &DecisionContext<'_>) -> MachineDecision {
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
pub(super) fn allocating(context: &DecisionContext<'_>) -> MachineDecision {
    match &context.facts.observation.state {
        MachineState::Absent => context.step(MachineStep::Allocate),
        MachineState::Allocated => context.goto(MachinePhase::Deploying),
        MachineState::Off => context.goto(MachinePhase::Booting),
        MachineState::Running => context.goto(MachinePhase::Bootstrapping),
        MachineState::Underway { stage } => context.underway(MachineStage::Allocating, *stage),
        MachineState::Broken { during, cause } => context.broken(*during, cause),
        MachineState::Unknown { cause } => context.unknown(cause),
    }
}

/// The machine is being installed.
pub(super) fn deploying(context: &DecisionContext<'_>) -> MachineDecision {
    match &context.facts.observation.state {
        MachineState::Absent => context.goto(MachinePhase::Allocating),
        MachineState::Allocated => context.step(MachineStep::Deploy),
        MachineState::Off => context.goto(MachinePhase::Booting),
        MachineState::Running => context.goto(MachinePhase::Bootstrapping),
        MachineState::Underway { stage } => context.underway(MachineStage::Deploying, *stage),
        MachineState::Broken { during, cause } => context.broken(*during, cause),
        MachineState::Unknown { cause } => context.unknown(cause),
    }
}

/// The machine is installed and is being powered on.
pub(super) fn booting(context: &DecisionContext<'_>) -> MachineDecision {
    match &context.facts.observation.state {
        MachineState::Absent => context.replace(MachinePhase::Allocating, context.record.attempt),
        MachineState::Allocated => context.replace(MachinePhase::Deploying, context.record.attempt),
        MachineState::Off => context.step(MachineStep::Boot),
        MachineState::Running => context.goto(MachinePhase::Bootstrapping),
        MachineState::Underway { stage } => context.underway(MachineStage::Booting, *stage),
        MachineState::Broken { during, cause } => context.broken(*during, cause),
        MachineState::Unknown { cause } => context.unknown(cause),
    }
}

/// The machine runs, and its agent has not connected yet.
pub(super) fn bootstrapping(context: &DecisionContext<'_>) -> MachineDecision {
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

fn wait_for_hello(context: &DecisionContext<'_>) -> MachineDecision {
    let until = context.deadline(MachineStage::Bootstrapping);
    if context.now >= until {
        let log = context.facts.observation.log.clone();
        let cause = FailureCause::NoHello { within: context.policy.bootstrapping, log };
        return context.fail(MachineStage::Bootstrapping, cause);
    }
    context.hold(MachineHoldReason::AgentHello { until }, Some(until))
}

/// The agent has connected. From now on its reports give the state of the node; only the machine is observed here.
pub(super) fn provisioned(context: &DecisionContext<'_>) -> MachineDecision {
    // A machine that fails soon after it came up keeps its count of attempts. Otherwise a machine that fails again and
    // again would be retried for ever.
    let up_for = context.now.duration_since(context.record.since);
    let attempt = if up_for >= context.policy.settled { 1 } else { context.record.attempt };
    match &context.facts.observation.state {
        MachineState::Running | MachineState::Underway { .. } => context.hold(MachineHoldReason::Provisioned, None),
        MachineState::Off => MachineDecision::Goto { phase: MachinePhase::Booting, attempt },
        MachineState::Absent => context.replace(MachinePhase::Allocating, attempt),
        MachineState::Allocated => context.replace(MachinePhase::Deploying, attempt),
        MachineState::Broken { during, cause } => {
            let cause = FailureCause::Broken { cause: cause.clone() };
            MachineDecision::Fail { during: context.failed_stage(*during), cause, attempt }
        }
        MachineState::Unknown { cause } => context.unknown(cause),
    }
}

/// The node is being decommissioned. Its machine keeps running, for a limited time, until the nodes that depend on it have
/// run without it. The state of the machine does not matter.
pub(super) fn decommissioned(context: &DecisionContext<'_>, decommission: &PendingDecommission) -> MachineDecision {
    let PendingDecommission { waits_for, until } = decommission;
    if waits_for.is_empty() || context.now >= *until {
        return MachineDecision::Goto { phase: MachinePhase::Releasing, attempt: 1 };
    }
    let reason = MachineHoldReason::OthersRunFirst { waits_for: waits_for.clone(), until: *until };
    MachineDecision::Hold { reason, recheck: Some(*until) }
}

/// The machine is being released, with everything on it.
pub(super) fn releasing(context: &DecisionContext<'_>) -> MachineDecision {
    match &context.facts.observation.state {
        MachineState::Absent => MachineDecision::Retire,
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
        | MachineState::Broken { .. } => context.step(MachineStep::Release),
        MachineState::Unknown { cause } => context.unknown(cause),
    }
}

/// The machine was being released, and the node is needed again: start again with whatever is left of the machine.
pub(super) fn needed_again() -> MachineDecision {
    MachineDecision::Goto { phase: MachinePhase::Declared, attempt: 1 }
}

/// An attempt has failed. It is retried after a pause, a limited number of times, from the observed state.
pub(super) fn failed(
    context: &DecisionContext<'_>,
    during: MachineStage,
    cause: &str,
    retry: Option<Timestamp>,
) -> MachineDecision {
    let seen = &context.facts.observation.state;
    // The release has succeeded after all.
    if during == MachineStage::Releasing && *seen == MachineState::Absent {
        return MachineDecision::Retire;
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
        None => MachineDecision::Hold {
            reason: MachineHoldReason::GaveUp { during, cause: cause.to_owned(), attempt },
            recheck: None,
        },
        Some(at) if context.now < at => context.hold(MachineHoldReason::NextAttempt { attempt: next, at }, Some(at)),
        Some(_) => retry_from(context, during, next),
    }
}

/// Retries from the observed state. A running machine without a connected agent gets its time once more: powering it off
/// could interrupt an agent that is about to connect.
fn retry_from(context: &DecisionContext<'_>, during: MachineStage, attempt: u32) -> MachineDecision {
    if during == MachineStage::Releasing {
        return MachineDecision::Retry { step: MachineStep::Release, attempt };
    }
    match &context.facts.observation.state {
        MachineState::Absent if was_installed(during) => context.replace(MachinePhase::Allocating, attempt),
        MachineState::Allocated if was_installed(during) => context.replace(MachinePhase::Deploying, attempt),
        MachineState::Absent => MachineDecision::Retry { step: MachineStep::Allocate, attempt },
        MachineState::Allocated => MachineDecision::Retry { step: MachineStep::Deploy, attempt },
        MachineState::Off => MachineDecision::Retry { step: MachineStep::Boot, attempt },
        MachineState::Running => MachineDecision::Goto { phase: MachinePhase::Bootstrapping, attempt },
        MachineState::Underway { stage: MachineStage::Releasing } => context.hold(
            MachineHoldReason::StepUnderway { stage: MachineStage::Releasing },
            Some(after(context.now, context.policy.retry_first)),
        ),
        MachineState::Underway { stage } => MachineDecision::Goto { phase: stage.phase(), attempt },
        MachineState::Broken { during, .. } => MachineDecision::Retry { step: repair_step(*during), attempt },
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

fn repair_step(broken: MachineStage) -> MachineStep {
    match broken {
        MachineStage::Allocating => MachineStep::Allocate,
        MachineStage::Deploying => MachineStep::Deploy,
        MachineStage::Booting | MachineStage::Bootstrapping => MachineStep::Boot,
        MachineStage::Releasing => MachineStep::Release,
    }
}

/// The record of a machine that enters a phase.
pub fn enter(driver: &str, phase: MachinePhase, attempt: u32, now: Timestamp) -> MachineRecord {
    MachineRecord { driver: driver.to_owned(), phase, attempt, since: now }
}

/// The record of a failed attempt, with the time of the next attempt, if any.
pub fn fail(
    driver: &str,
    during: MachineStage,
    cause: &FailureCause,
    attempt: u32,
    policy: &Policy,
    now: Timestamp,
) -> MachineRecord {
    let attempts_left = during == MachineStage::Releasing || attempt < policy.attempts;
    let retry = (!cause.is_permanent() && attempts_left).then(|| after(now, policy.pause_after(attempt)));
    let cause = clip(&cause.to_string(), MAX_CAUSE);
    enter(driver, MachinePhase::Failed { during, cause, retry }, attempt, now)
}
