//! Automatic rollback of a release that no server has confirmed in time.
//!
//! A release may cut the node off from every server: a firewall, a route, a certificate. A desired state can therefore
//! require a confirmation (`confirm_within`). The ledger keeps the state of that confirmation together with the release
//! that the node ran before. The first report of the new release that a server accepts confirms it. Without one, the node
//! rolls back: from then on it runs the previous release in place of the generation, until there is a newer generation.
//!
//! A generation is confirmed once. A server that is unreachable later causes no rollback.
//!
//! [`AutoRollback`] is the record with its transitions; the rest is the part of [`RunQueue`] that drives it.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use muster_core::names::{RunId, Version};
use muster_core::report::reason::RunReason;
use muster_core::report::status_move;
use muster_core::report::{Outcome, RunResult};
use muster_core::txn::Generation;
use muster_wire::sync::DesiredState;

use crate::clock::{ClockReading, Clocks, EventTime};
use crate::queue::decide::QueueEvent;
use crate::queue::io::{AcceptedReport, Effect};
use crate::queue::state_machine::RunQueue;
use crate::report::unsent::UnsentReport;

/// Minimum time that an agent has to report after its start before it rolls back, even if the confirmation time is over.
/// The agent may have been down for all of that time, for example during a reboot. Finding a server takes this long if
/// the first servers in its order are frozen.
pub const RESTART_GRACE: Duration = Duration::from_secs(30);

/// Confirmation state of one desired state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutoRollback {
    pub generation: Generation,
    pub version: Version,
    pub within: SignedDuration,
    /// The release to roll back to: the last one applied that was not itself unconfirmed. None on a node that never ran
    /// another release.
    #[serde(rename = "before")]
    pub previous: Option<DesiredState>,
    pub stage: RollbackStage,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum RollbackStage {
    /// Nothing was applied that a server does not know of.
    #[serde(rename = "begun")]
    Started,
    /// The release was applied, and no server has accepted a report of that.
    Unconfirmed {
        run: RunId,
        /// The applier succeeded. A failed applier may cut the node off as well, but a report of the failure confirms
        /// nothing, because the rest of the release is still to be applied.
        #[serde(rename = "whole")]
        complete: bool,
        /// Time at which the applier ended.
        since: ClockReading,
    },
    /// A server has accepted a report of the release.
    Confirmed,
    /// The node rolls back, or has rolled back.
    #[serde(rename = "given_up")]
    RolledBack,
    /// The time is over, but the node cannot roll back.
    #[serde(rename = "stays")]
    CannotRollBack {
        problem: String,
        /// A report contains it.
        #[serde(rename = "told")]
        reported: bool,
    },
}

impl AutoRollback {
    /// The record for a run of `desired`: the existing one, or a new one if `desired` requires a confirmation. `applied`
    /// is the release that was applied last.
    pub fn for_run(
        desired: &DesiredState,
        existing: Option<&AutoRollback>,
        applied: Option<&DesiredState>,
    ) -> Option<AutoRollback> {
        if let Some(existing) = existing.filter(|existing| existing.generation == desired.generation) {
            return Some(existing.clone());
        }
        let within = desired.confirm_within?;
        let older = existing.and_then(|existing| existing.previous.as_ref());
        let previous = match existing.map(|existing| &existing.stage) {
            // An unconfirmed release is no rollback target.
            Some(RollbackStage::Unconfirmed { .. } | RollbackStage::RolledBack) => older,
            Some(RollbackStage::Started | RollbackStage::Confirmed | RollbackStage::CannotRollBack { .. }) | None => {
                applied.or(older)
            }
        };
        // A rollback to the same release would be a no-op.
        if previous.is_some_and(|previous| previous.digest == desired.digest) {
            return None;
        }
        let (generation, version) = (desired.generation, desired.version.clone());
        Some(Self { generation, version, within, previous: previous.cloned(), stage: RollbackStage::Started })
    }

    /// Records that the applier has ended, successfully or after it changed something. The time starts at the first such
    /// end, and again at the first success.
    pub fn applied(&mut self, run: &RunId, complete: bool, now: &Clocks) {
        match &self.stage {
            RollbackStage::Started => {}
            RollbackStage::Unconfirmed { complete: false, .. } if complete => {}
            RollbackStage::Unconfirmed { .. }
            | RollbackStage::Confirmed
            | RollbackStage::RolledBack
            | RollbackStage::CannotRollBack { .. } => return,
        }
        self.stage = RollbackStage::Unconfirmed { run: run.clone(), complete, since: now.into() };
    }

    /// Records that a server has accepted a report of this generation. Returns true if the stage has changed.
    pub fn report_accepted(&mut self, of: &RunId, outcome: Outcome) -> bool {
        let RollbackStage::Unconfirmed { run, .. } = &self.stage else { return false };
        self.stage = match outcome {
            Outcome::Configured(RunResult::Unchanged | RunResult::Changed) | Outcome::Validated(_) => {
                RollbackStage::Confirmed
            }
            Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Previewed(_) if run == of => {
                RollbackStage::Started
            }
            Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Previewed(_) => return false,
        };
        true
    }

    /// Time left for a server to accept a report; `None` if no confirmation is awaited.
    pub fn time_left(&self, now: &Clocks) -> Option<Duration> {
        match &self.stage {
            RollbackStage::Unconfirmed { since, .. } => Some(self.within().saturating_sub(since.elapsed(now))),
            RollbackStage::Started
            | RollbackStage::Confirmed
            | RollbackStage::RolledBack
            | RollbackStage::CannotRollBack { .. } => None,
        }
    }

    pub fn within(&self) -> Duration {
        Duration::try_from(self.within).unwrap_or_default()
    }

    pub fn is_unconfirmed(&self) -> bool {
        match self.stage {
            RollbackStage::Unconfirmed { .. } => true,
            RollbackStage::Started
            | RollbackStage::Confirmed
            | RollbackStage::RolledBack
            | RollbackStage::CannotRollBack { .. } => false,
        }
    }

    /// True if an accepted report may still change the stage. The sender keeps such a report until the queue has stored
    /// that it was accepted.
    pub fn is_open(&self) -> bool {
        match self.stage {
            RollbackStage::Started | RollbackStage::Unconfirmed { .. } => true,
            RollbackStage::Confirmed | RollbackStage::RolledBack | RollbackStage::CannotRollBack { .. } => false,
        }
    }

    /// The release that the node runs in place of a generation that it has rolled back. It carries the generation of the
    /// rolled back one, so that reports answer the request for that generation.
    pub fn replacement(&self) -> Option<DesiredState> {
        match self.stage {
            RollbackStage::RolledBack => self.previous.as_ref().map(|previous| self.rollback_to(previous)),
            RollbackStage::Started
            | RollbackStage::Unconfirmed { .. }
            | RollbackStage::Confirmed
            | RollbackStage::CannotRollBack { .. } => None,
        }
    }

    /// The desired state of the rollback. The request for a confirmation allows the older release, and the rollback
    /// itself needs no confirmation.
    pub fn rollback_to(&self, previous: &DesiredState) -> DesiredState {
        DesiredState { generation: self.generation, allow_older: true, confirm_within: None, ..previous.clone() }
    }
}

impl RunQueue {
    /// Opens the confirmation of a run that starts.
    pub(super) fn open_confirmation(&mut self, desired: &DesiredState) {
        let applied = self.ledger.applied.as_ref().map(|applied| &applied.desired);
        self.ledger.auto_rollback = AutoRollback::for_run(desired, self.ledger.auto_rollback.as_ref(), applied);
    }

    /// Digest of the release that must stay on the node because it may roll back to it.
    pub(super) fn fallback(&self) -> Option<String> {
        let rollback = self.ledger.current_rollback().filter(|rollback| rollback.is_open())?;
        rollback.previous.as_ref().map(|previous| previous.digest.clone())
    }

    /// Starts the confirmation time when the applier of a run has ended. A failed one counts if it may have changed
    /// something.
    pub(super) fn await_confirmation(&mut self, report: &UnsentReport, now: EventTime) {
        let complete = match report.outcome {
            Outcome::Configured(RunResult::Unchanged | RunResult::Changed) => true,
            Outcome::Configured(RunResult::Failed)
                if !status_move::applied_nothing(report.outcome, report.reason.as_ref()) =>
            {
                false
            }
            Outcome::Configured(RunResult::Failed | RunResult::Pending)
            | Outcome::Validated(_)
            | Outcome::Previewed(_) => return,
        };
        let clocks = now.clocks(self.node.boot.as_deref());
        let rollback = self.ledger.auto_rollback.as_mut();
        let Some(rollback) = rollback.filter(|rollback| rollback.generation == report.generation) else { return };
        rollback.applied(&report.run, complete, &clocks);
        self.confirm_by = rollback.time_left(&clocks).map(|left| now.instant + left);
    }

    /// After a start: converts the remaining time to the clock of the timers.
    pub(super) fn resume_confirmation(&mut self, now: EventTime) {
        let clocks = now.clocks(self.node.boot.as_deref());
        let left = |rollback: &AutoRollback| rollback.time_left(&clocks).map(|left| left.max(RESTART_GRACE));
        self.confirm_by = self.ledger.current_rollback().and_then(left).map(|left| now.instant + left);
    }

    /// Deadline of the confirmation; `None` if the current desired state awaits none.
    pub(super) fn confirm_by(&self) -> Option<Instant> {
        self.confirm_by.filter(|_| self.ledger.awaits_confirmation())
    }

    /// Handles a report that a server has accepted. The sender removes it from the outbox when this is acknowledged.
    pub(super) fn report_accepted(&mut self, AcceptedReport { run, generation, outcome }: &AcceptedReport) {
        let rollback = self.ledger.auto_rollback.as_mut().filter(|rollback| rollback.generation == *generation);
        if let Some(rollback) = rollback
            && rollback.report_accepted(run, *outcome)
        {
            if rollback.stage == RollbackStage::Confirmed {
                tracing::info!(version = %rollback.version, "release confirmed: a server accepted its report");
            }
            self.save();
        }
    }

    /// After the time is over, requests a check that the rollback target is on the node, and returns true. The queue
    /// starts nothing before the answer: it could be another run of the release to be rolled back.
    pub(super) fn check_rollback(&mut self, now: Instant) -> bool {
        if self.confirm_by().is_none_or(|by| by > now) {
            return false;
        }
        let Some(rollback) = self.ledger.current_rollback() else { return false };
        match &rollback.previous {
            Some(previous) => {
                self.effects.push(Effect::CheckRelease(Box::new(rollback.rollback_to(previous))));
                true
            }
            None => {
                self.cannot_roll_back("the node has run no other release".to_owned());
                false
            }
        }
    }

    /// Handles the answer: rolls back if the target can be used.
    pub(super) fn release_checked(&mut self, problem: Option<String>) -> Option<QueueEvent> {
        if let Some(problem) = problem {
            self.cannot_roll_back(problem);
            return None;
        }
        let rollback = self.unconfirmed_rollback()?;
        rollback.stage = RollbackStage::RolledBack;
        let (version, within) = (rollback.version.clone(), rollback.within);
        tracing::error!(%version, "no server accepted a report of the release within {within:#}: rolling back to the previous one");
        Some(QueueEvent::RolledBack { version, within })
    }

    fn cannot_roll_back(&mut self, problem: String) {
        let Some(rollback) = self.unconfirmed_rollback() else { return };
        let (version, within) = (rollback.version.clone(), rollback.within);
        tracing::error!(%version, problem, "no server accepted a report of the release within {within:#}, and the node cannot roll back");
        rollback.stage = RollbackStage::CannotRollBack { problem, reported: false };
        self.save();
    }

    fn unconfirmed_rollback(&mut self) -> Option<&mut AutoRollback> {
        let generation = self.ledger.desired.as_ref()?.generation;
        self.ledger
            .auto_rollback
            .as_mut()
            .filter(|rollback| rollback.generation == generation && rollback.is_unconfirmed())
    }

    /// True if no report contains yet that the node could not roll back.
    pub(super) fn has_unreported_rollback_failure(&self) -> bool {
        let stage = self.ledger.current_rollback().map(|rollback| &rollback.stage);
        matches!(stage, Some(RollbackStage::CannotRollBack { reported: false, .. }))
    }

    /// Sets the reason of a report that has none to the failed rollback.
    pub(super) fn report_rollback_failure(&mut self, report: &mut UnsentReport) {
        let is_preview = matches!(report.outcome, Outcome::Previewed(_));
        if is_preview || report.reason.is_some() || !self.has_unreported_rollback_failure() {
            return;
        }
        let Some(rollback) = self.ledger.auto_rollback.as_mut() else { return };
        if let RollbackStage::CannotRollBack { problem, reported } = &mut rollback.stage {
            let (version, within, problem) = (rollback.version.clone(), rollback.within, problem.clone());
            report.reason = Some(RunReason::AutoRollbackFailed { version, within, problem });
            *reported = true;
        }
    }
}

#[cfg(test)]
mod tests;
