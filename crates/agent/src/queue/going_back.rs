//! How the queue goes back from what nobody confirmed; see [`crate::trial`].

use tokio::time::Instant;

use muster_core::report::reason::RunReason;
use muster_core::report::{Outcome, Report, RunResult, status_move};
use muster_wire::sync::DesiredState;

use crate::queue::decide::Event;
use crate::queue::effect::Effect;
use crate::queue::input::TakenReport;
use crate::queue::mind::Mind;
use crate::queue::moment::Moment;
use crate::trial::{RESTART_PATIENCE, Stage, Trial};

impl Mind {
    /// A run begins.
    pub(super) fn begin_trial(&mut self, desired: &DesiredState) {
        let applied = self.ledger.applied.as_ref().map(|applied| &applied.desired);
        self.ledger.trial = Trial::of(desired, self.ledger.trial.as_ref(), applied);
    }

    /// What must not be removed from the node as long as it may go back to it.
    pub(super) fn fallback(&self) -> Option<String> {
        let trial = self.ledger.trial_now().filter(|trial| trial.is_open())?;
        trial.before.as_ref().map(|before| before.digest.clone())
    }

    /// The applier of a run has ended. One that failed counts if it may have changed something.
    pub(super) fn await_confirmation(&mut self, report: &Report, now: Moment) {
        let whole = match report.outcome {
            Outcome::Configured(RunResult::Unchanged | RunResult::Changed) => true,
            Outcome::Configured(RunResult::Failed) if !status_move::applied_nothing(report) => false,
            Outcome::Configured(RunResult::Failed | RunResult::Pending)
            | Outcome::Validated(_)
            | Outcome::Previewed(_) => return,
        };
        let here = now.here(self.node.boot.as_deref());
        let Some(trial) = self.ledger.trial.as_mut().filter(|trial| trial.generation == report.generation) else {
            return;
        };
        trial.applied(&report.run, whole, &here);
        self.confirm_by = trial.left(&here).map(|left| now.instant + left);
    }

    /// The agent has started: puts what is left of the time on the clock that it waits by.
    pub(super) fn measure_trial(&mut self, now: Moment) {
        let here = now.here(self.node.boot.as_deref());
        let left = |trial: &Trial| trial.left(&here).map(|left| left.max(RESTART_PATIENCE));
        self.confirm_by = self.ledger.trial_now().and_then(left).map(|left| now.instant + left);
    }

    /// When the time is over; none if nobody waits for a confirmation of what the node should run now.
    pub(super) fn confirm_by(&self) -> Option<Instant> {
        self.confirm_by.filter(|_| self.ledger.trial_now().is_some_and(Trial::is_unconfirmed))
    }

    /// A server has taken a report. Whoever sent it forgets it when this is acknowledged.
    pub(super) fn taken(&mut self, TakenReport { run, generation, outcome }: &TakenReport) {
        let trial = self.ledger.trial.as_mut().filter(|trial| trial.generation == *generation);
        if let Some(trial) = trial
            && trial.taken(run, *outcome)
        {
            if trial.stage == Stage::Confirmed {
                tracing::info!(version = %trial.version, "confirmed: a server knows that the node was brought to it");
            }
            self.save();
        }
    }

    /// The time may be over. What it would go back to must be there: that is looked up first, and true is given. Nothing begins
    /// before it is answered: it might be another run of what is to be left.
    pub(super) fn looks_back(&mut self, now: Instant) -> bool {
        if self.confirm_by().is_none_or(|by| by > now) {
            return false;
        }
        let Some(trial) = self.ledger.trial_now() else { return false };
        match &trial.before {
            Some(before) => {
                self.effects.push(Effect::LookOnShelf(Box::new(trial.back_to(before))));
                true
            }
            None => {
                self.stay("it ran nothing before".to_owned());
                false
            }
        }
    }

    /// Whether what the node would go back to is there. If it is, there is no way but back from here.
    pub(super) fn looked(&mut self, problem: Option<String>) -> Option<Event> {
        if let Some(problem) = problem {
            self.stay(problem);
            return None;
        }
        let trial = self.unconfirmed()?;
        trial.stage = Stage::GivenUp;
        let (version, within) = (trial.version.clone(), trial.within);
        tracing::error!(%version, "no server took a report of it within {within:#}: the node goes back to what it ran before");
        Some(Event::GaveUp { version, within })
    }

    fn stay(&mut self, problem: String) {
        let Some(trial) = self.unconfirmed() else { return };
        let (version, within) = (trial.version.clone(), trial.within);
        tracing::error!(%version, problem, "no server took a report of it within {within:#}, and the node cannot go back");
        trial.stage = Stage::Stays { problem, told: false };
        self.save();
    }

    fn unconfirmed(&mut self) -> Option<&mut Trial> {
        let generation = self.ledger.desired.as_ref()?.generation;
        self.ledger.trial.as_mut().filter(|trial| trial.generation == generation && trial.is_unconfirmed())
    }

    /// Whether somebody has still to be told that the node could not go back.
    pub(super) fn stays_untold(&self) -> bool {
        matches!(self.ledger.trial_now().map(|trial| &trial.stage), Some(Stage::Stays { told: false, .. }))
    }

    /// Says in a report that has nothing else to say that the node could not go back.
    pub(super) fn confess(&mut self, report: &mut Report) {
        let is_preview = matches!(report.outcome, Outcome::Previewed(_));
        if is_preview || report.reason.is_some() || !self.stays_untold() {
            return;
        }
        let Some(trial) = self.ledger.trial.as_mut() else { return };
        if let Stage::Stays { problem, told } = &mut trial.stage {
            let (version, within, problem) = (trial.version.clone(), trial.within, problem.clone());
            report.reason = Some(RunReason::NotGoneBack { version, within, problem });
            *told = true;
        }
    }
}
