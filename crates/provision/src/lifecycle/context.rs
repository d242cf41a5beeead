//! Inputs and building blocks of the decisions, and the records that they lead to.

use jiff::Timestamp;

use muster_core::node::record::{MachinePhase, MachineRecord, MachineStage};
use muster_core::report::summary::clip;

use super::policy::after;
use super::{Decision, FailureCause, HoldReason, MachineFacts, Policy, Step, StuckReason};

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
    pub(super) fn goto(&self, phase: MachinePhase) -> Decision {
        Decision::Goto { phase, attempt: self.record.attempt }
    }

    pub(super) fn fail(&self, during: MachineStage, cause: FailureCause) -> Decision {
        Decision::Fail { during, cause, attempt: self.record.attempt }
    }

    pub(super) fn broken(&self, during: MachineStage, cause: &str) -> Decision {
        self.fail(self.failed_stage(during), FailureCause::Broken { cause: cause.to_owned() })
    }

    /// The stage that a broken machine has failed in. If it could not be released, the allocation fails for a node that is
    /// needed.
    pub(super) fn failed_stage(&self, during: MachineStage) -> MachineStage {
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
    pub(super) fn step(&self, step: Step) -> Decision {
        if self.now >= self.deadline(step.stage()) {
            return self.timed_out(step.stage());
        }
        Decision::Do { step, attempt: self.record.attempt }
    }

    /// Wait for a step in progress, unless the stage has timed out.
    pub(super) fn underway(&self, waiting_in: MachineStage, underway: MachineStage) -> Decision {
        if self.now >= self.deadline(waiting_in) {
            return self.timed_out(waiting_in);
        }
        self.hold(HoldReason::StepUnderway { stage: underway }, Some(self.deadline(waiting_in)))
    }

    /// Wait for the machine's controller, without a deadline: the state of the machine is unknown.
    pub(super) fn unknown(&self, cause: &str) -> Decision {
        let soon = after(self.now, self.policy.retry_first);
        self.hold(HoldReason::ControllerSilent { cause: cause.to_owned() }, Some(soon))
    }

    /// Wait until `then`, or for the poll interval if the driver does not report changes.
    pub(super) fn hold(&self, reason: HoldReason, then: Option<Timestamp>) -> Decision {
        let poll = self.policy.poll_interval.map(|pause| after(self.now, pause));
        Decision::Hold { reason, recheck: then.into_iter().chain(poll).min() }
    }

    /// The content of the machine is lost. It is created again only if the policy allows it.
    pub(super) fn replace(&self, phase: MachinePhase, attempt: u32) -> Decision {
        if self.policy.replace_lost {
            Decision::Goto { phase, attempt }
        } else {
            Decision::Stuck { reason: StuckReason::Lost }
        }
    }

    /// Deadline of a stage. Time before the controller started does not count.
    pub(super) fn deadline(&self, stage: MachineStage) -> Timestamp {
        after(self.record.since.max(self.policy.serving_since), self.policy.limit(stage))
    }

    fn timed_out(&self, stage: MachineStage) -> Decision {
        self.fail(stage, FailureCause::Timeout { within: self.policy.limit(stage) })
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
