//! What is written down when something that had the slot has come to a result.

use muster_core::names::RunId;
use muster_core::report::{HookResult, Outcome, Report, Verdict, status_move};

use crate::ledger::{AppliedRelease, LastRun, LocalVersion, Proved, RunEnd, RunPhase, Work};
use crate::queue::decide::Event;
use crate::queue::effect::Effect;
use crate::queue::hooks;
use crate::queue::mind::Mind;
use crate::queue::moment::Moment;
use crate::recovery;

impl Mind {
    /// The applier of a run ended well.
    pub(super) fn configured(&mut self, report: Report, applied: AppliedRelease, now: Moment) {
        tracing::info!(run = %report.run, result = report.outcome.word(), "configured");
        let before = self.ledger.applied.as_ref().map(|before| &before.desired.digest);
        if before != Some(&applied.desired.digest) {
            // What the hooks of another release have done says nothing of these.
            self.ledger.hooks.clear();
        }
        self.ledger.applied = Some(applied);
        self.await_confirmation(&report, now);
        self.report(report);
        self.reached_checks(now);
    }

    pub(super) fn reached_checks(&mut self, now: Moment) {
        if let Some(run) = &mut self.ledger.running {
            run.phase = RunPhase::Validating;
        }
        self.save();
        self.publish(now);
    }

    /// A run is over.
    pub(super) fn finished(&mut self, report: Report, last: LastRun, now: Moment) {
        let reason = report.reason.as_ref().map(ToString::to_string).unwrap_or_default();
        let (phase, result) = (report.outcome.phase(), report.outcome.word());
        match last.end {
            RunEnd::Validated | RunEnd::Pending => tracing::info!(run = %report.run, result, reason, "{phase}"),
            RunEnd::Failed => tracing::warn!(run = %report.run, result, reason, "{phase}"),
        }
        match report.outcome {
            Outcome::Validated(_) => self.ledger.proved = Some(Proved::by(&report)),
            Outcome::Configured(_) | Outcome::Previewed(_) => self.left_half_done(&report, &last),
        }
        if last.end == RunEnd::Validated {
            let (version, digest) = (report.version.clone(), report.digest.clone());
            self.ledger.local = Some(LocalVersion { version, digest });
        }
        self.await_confirmation(&report, now);
        self.report(report);
        self.ledger.last = Some(last);
        // What the next one saw is compared with this; one that was cut off saw nothing to the end.
        if let Some(given) = self.given.take() {
            self.seen = Some(given);
        }
        self.over();
    }

    /// After a run of another version that failed in the middle the node is at neither: there is nothing to validate, and
    /// nobody to react, until a run ends well.
    fn left_half_done(&mut self, report: &Report, last: &LastRun) {
        let applied = self.ledger.applied.as_ref().map(|applied| &applied.desired.version);
        if last.end == RunEnd::Failed && applied != Some(&report.version) && !status_move::applied_nothing(report) {
            self.ledger.applied = None;
            self.ledger.hooks.clear();
        }
    }

    /// A preview is over: nothing has changed but that those who asked have their answer.
    pub(super) fn previewed(&mut self, mut report: Report) {
        tracing::info!(run = %report.run, result = report.outcome.word(), "previewed");
        report.lookups = self.ledger.watched(self.snapshot.as_deref());
        self.ledger.previews.retain(|cause| !report.causes.contains(cause));
        self.report(report);
        self.given = None;
        self.over();
    }

    /// A validation on its own is over. In steady state it says what the last one said, and then nobody is told.
    pub(super) fn validated(&mut self, report: Option<Report>) {
        self.given = None;
        if let Some(mut report) = report {
            report.lookups = self.ledger.watched(self.snapshot.as_deref());
            let proved = Proved::by(&report);
            // A hook has failed, and what it failed at is no more: it will not run, so this is what says that all is well.
            let made_up_for = self.known().hooks_due().is_empty() && hooks::forget_failures(&mut self.ledger.hooks);
            let is_news = made_up_for || self.stays_untold() || self.ledger.proved.as_ref() != Some(&proved);
            self.judge_again(&report);
            if is_news {
                let failed = proved.failed.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                match report.outcome.word() {
                    word if failed.is_empty() => tracing::info!(run = %report.run, "validated between runs: {word}"),
                    word => tracing::warn!(run = %report.run, failed, "validated between runs: {word}"),
                }
                self.ledger.proved = Some(proved);
                self.report(report);
            }
        }
        self.over();
    }

    /// Hooks are over, and the checks after them.
    pub(super) fn hooks_run(&mut self, mut report: Report, results: &[HookResult]) {
        let hooks = self.ledger.applied.as_ref().map(|applied| applied.hooks.clone()).unwrap_or_default();
        let given = self.given.take();
        for result in results {
            let hook = hooks.iter().find(|hook| hook.name == result.name);
            let (Some(hook), Some(snapshot)) = (hook, given.as_deref()) else { continue };
            let memory = self.ledger.hooks.entry(hook.name.clone()).or_default();
            let saw = hooks::sees(&hook.keys, snapshot);
            match result.verdict {
                Verdict::Passed => {
                    tracing::info!(run = %report.run, hook = hook.name, "a hook has reacted");
                    memory.seen = saw;
                    memory.tried.clear();
                    memory.attempt = 0;
                }
                Verdict::Failed => {
                    tracing::warn!(run = %report.run, hook = hook.name, message = result.message, "a hook has failed");
                    memory.tried = saw;
                    memory.attempt = memory.attempt.saturating_add(1);
                }
            }
        }
        report.lookups = self.ledger.watched(self.snapshot.as_deref());
        match report.outcome {
            Outcome::Validated(_) => {
                self.judge_again(&report);
                self.ledger.proved = Some(Proved::by(&report));
            }
            Outcome::Configured(_) | Outcome::Previewed(_) => {}
        }
        self.report(report);
        self.over();
    }

    /// A validation after the last run has the last word on how the node does. One that fails is followed by a run, as any
    /// failure is; and when one passes again before that, the run is not needed.
    fn judge_again(&mut self, report: &Report) {
        let passed = report.outcome == Outcome::Validated(Verdict::Passed);
        if passed {
            let (version, digest) = (report.version.clone(), report.digest.clone());
            self.ledger.local = Some(LocalVersion { version, digest });
        }
        if let Some(last) = &mut self.ledger.last {
            judge_again(last, passed, report);
        }
    }

    /// The agent has started. What is in the ledger as going on was cut off, and nothing happens before all of it has ended.
    pub(super) fn begin(&mut self, now: Moment) -> Option<Event> {
        let Some(cut_off) = self.ledger.running.clone() else { return Some(self.began(None, now)) };
        tracing::warn!(run = %cut_off.run, version = %cut_off.version, "a run was interrupted; ending what is left of it");
        self.effects.push(Effect::EndProcesses(Box::new(cut_off)));
        None
    }

    /// Nothing is left of what was cut off. A run is reported as such, and made again. Of the rest nobody was told anything:
    /// checks are made when they are due, previews and hooks are still asked for.
    pub(super) fn recover(&mut self, now: Moment) -> Option<Event> {
        let cut_off = self.ledger.running.clone()?;
        let interrupted = match cut_off.work {
            Work::Run => {
                let (report, last) = recovery::interrupted(&self.node, &cut_off, self.ledger.last.as_ref(), now.clock);
                self.finished(report, last, now);
                Some(cut_off.run)
            }
            Work::Preview | Work::Hooks | Work::Validation => {
                self.over();
                None
            }
        };
        Some(self.began(interrupted, now))
    }

    fn began(&mut self, interrupted: Option<RunId>, now: Moment) -> Event {
        self.measure_pause(now);
        self.measure_trial(now);
        let (waiting, previews) = (self.ledger.waiting.clone(), self.ledger.previews.clone());
        Event::Started { interrupted, waiting, previews }
    }

    /// The slot is free.
    fn over(&mut self) {
        self.ledger.running = None;
        self.save();
    }

    /// Keeps a report until the server has it. What it says that the node watches is what the server wakes it for.
    fn report(&mut self, mut report: Report) {
        self.ledger.watch_hooks(&mut report.lookups, self.snapshot.as_deref());
        self.confess(&mut report);
        self.effects.push(Effect::KeepReport(Box::new(report)));
        self.effects.push(Effect::WakeSender);
    }
}

/// How the last run is seen after a validation that came later.
fn judge_again(last: &mut LastRun, passed: bool, report: &Report) {
    match last.end {
        RunEnd::Validated | RunEnd::Pending if !passed => {
            last.end = RunEnd::Failed;
            last.only_checks_failed = true;
            last.attempt += 1;
            last.first_failure.clone_from(&report.first_failure);
        }
        // A run that waits for something has still to be made: the checks were those of the release before.
        RunEnd::Failed if passed && last.only_checks_failed && last.needs.is_empty() => {
            last.end = RunEnd::Validated;
            last.only_checks_failed = false;
            last.attempt = 0;
            last.first_failure = None;
        }
        RunEnd::Validated | RunEnd::Pending | RunEnd::Failed => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use muster_core::report::reason::Need;

    use crate::testing::report;

    fn last(end: RunEnd, needs: Vec<Need>) -> LastRun {
        LastRun {
            run: RunId::new("r1").unwrap(),
            generation: muster_core::txn::Generation { epoch: 1, number: 1 },
            end,
            needs,
            lookups: muster_core::lookup::Lookups::new(),
            attempt: 0,
            first_failure: None,
            only_checks_failed: false,
        }
    }

    #[test]
    fn checks_of_the_release_before_do_not_make_up_for_a_run_that_waits() {
        let report = report(1);
        let mut ended = last(RunEnd::Validated, Vec::new());
        judge_again(&mut ended, false, &report);
        assert_eq!((ended.end, ended.attempt), (RunEnd::Failed, 1));
        judge_again(&mut ended, true, &report);
        assert_eq!((ended.end, ended.attempt), (RunEnd::Validated, 0));

        let mut waits = last(RunEnd::Pending, vec![Need::Other { reason: "a licence".into() }]);
        judge_again(&mut waits, false, &report);
        judge_again(&mut waits, true, &report);
        assert_eq!(waits.end, RunEnd::Failed, "it is made again, and says for what it waits");
    }
}
