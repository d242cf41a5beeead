//! What the phases share: the moment of a decision, and how a record changes.

use jiff::Timestamp;

use muster_core::node::record::{MachinePhase, MachineRecord, MachineStage};
use muster_core::report::summary::clip;

use super::policy::after;
use super::{Decision, Facts, FailureCause, HoldReason, Policy, Step, StuckReason};

/// A cause is for people to read, and stands in every listing. The whole story is in the log.
const LONGEST_CAUSE: usize = 2048;

/// The moment of a decision.
pub(super) struct Turn<'a> {
    pub record: &'a MachineRecord,
    pub facts: &'a Facts,
    pub policy: &'a Policy,
    pub now: Timestamp,
}

impl Turn<'_> {
    /// On to another phase, in the same attempt.
    pub(super) fn goto(&self, phase: MachinePhase) -> Decision {
        Decision::Goto { phase, attempt: self.record.attempt }
    }

    pub(super) fn fail(&self, during: MachineStage, cause: FailureCause) -> Decision {
        Decision::Fail { during, cause, attempt: self.record.attempt }
    }

    pub(super) fn broken(&self, during: MachineStage, cause: &str) -> Decision {
        self.fail(self.failing(during), FailureCause::SeenBroken { cause: cause.to_owned() })
    }

    /// What fails when a machine is seen broken. One that could not be given back cannot be had, for a node that is
    /// wanted.
    pub(super) fn failing(&self, during: MachineStage) -> MachineStage {
        match during {
            MachineStage::Releasing if self.facts.leaving.is_none() => MachineStage::Allocating,
            MachineStage::Allocating
            | MachineStage::Deploying
            | MachineStage::Booting
            | MachineStage::Bootstrapping
            | MachineStage::Releasing => during,
        }
    }

    /// The step of a stage, unless it was tried for too long.
    pub(super) fn step(&self, step: Step) -> Decision {
        if self.now >= self.deadline(step.stage()) {
            return self.too_late(step.stage());
        }
        Decision::Do { step, attempt: self.record.attempt }
    }

    /// Wait for what the driver does, unless it takes too long.
    pub(super) fn underway(&self, waiting_in: MachineStage, underway: MachineStage) -> Decision {
        if self.now >= self.deadline(waiting_in) {
            return self.too_late(waiting_in);
        }
        self.hold(HoldReason::StepUnderway { stage: underway }, Some(self.deadline(waiting_in)))
    }

    /// Wait for the machine's controller to answer, however long that takes: its silence says nothing of the machine.
    pub(super) fn unknown(&self, cause: &str) -> Decision {
        let soon = after(self.now, self.policy.retry_first);
        self.hold(HoldReason::ControllerSilent { cause: cause.to_owned() }, Some(soon))
    }

    /// Wait, and look again then, or earlier if the driver does not tell of changes.
    pub(super) fn hold(&self, reason: HoldReason, then: Option<Timestamp>) -> Decision {
        let look_again = self.policy.look_again.map(|pause| after(self.now, pause));
        Decision::Hold { reason, recheck: then.into_iter().chain(look_again).min() }
    }

    /// What was on the machine is gone. To make it again is right only where all of it can be made again.
    pub(super) fn replace(&self, phase: MachinePhase, attempt: u32) -> Decision {
        if self.policy.replace_lost {
            Decision::Goto { phase, attempt }
        } else {
            Decision::Stuck { reason: StuckReason::Lost }
        }
    }

    /// Until when a stage may last. The time when nobody was there to see its end does not count.
    pub(super) fn deadline(&self, stage: MachineStage) -> Timestamp {
        after(self.record.since.max(self.policy.serving_since), self.policy.limit(stage))
    }

    fn too_late(&self, stage: MachineStage) -> Decision {
        self.fail(stage, FailureCause::TooLate { within: self.policy.limit(stage) })
    }
}

/// The record of a machine that has come to a phase.
pub fn enter(driver: &str, phase: MachinePhase, attempt: u32, now: Timestamp) -> MachineRecord {
    MachineRecord { driver: driver.to_owned(), phase, attempt, since: now }
}

/// The record of a machine whose attempt has failed: it says when the next one is made, if there is one.
pub fn fail(
    driver: &str,
    during: MachineStage,
    cause: &FailureCause,
    attempt: u32,
    policy: &Policy,
    now: Timestamp,
) -> MachineRecord {
    let tries_left = during == MachineStage::Releasing || attempt < policy.attempts;
    let again = !cause.is_lasting() && tries_left;
    let retry = again.then(|| after(now, policy.pause_after(attempt)));
    let cause = clip(&cause.to_string(), LONGEST_CAUSE);
    enter(driver, MachinePhase::Failed { during, cause, retry }, attempt, now)
}
