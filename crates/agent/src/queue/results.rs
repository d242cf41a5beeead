//! Stores the results of work that has ended, and adopts the work of an earlier agent.

use muster_core::lookup::published;
use muster_core::names::Version;
use muster_core::report::drift;
use muster_core::report::{Cause, HookResult, Outcome, RunResult, Verdict, status_move};
use muster_wire::sync::DesiredState;

use crate::clock::EventTime;
use crate::queue::decide::QueueEvent;
use crate::queue::hooks;
use crate::queue::io::Effect;
use crate::queue::schedule::merge;
use crate::queue::state_machine::{FirstWork, RunQueue};
use crate::report::unsent::UnsentReport;
use crate::run::WorkOrder;
use crate::state::ledger::{
    AppliedRelease, Ledger, LedgerRunEnd, LocalVersion, PreviousRun, RunPhase, RunningRun, ValidationRecord, Work,
};

impl RunQueue {
    /// The applier of a run has succeeded.
    pub(super) fn configured(&mut self, report: UnsentReport, applied: AppliedRelease, now: EventTime) {
        tracing::info!(run = %report.run, result = report.outcome.word(), "configured");
        let unchanged = self.is_unchanged(&report, &applied);
        let before = self.ledger.applied.as_ref().map(|before| &before.desired.digest);
        if before != Some(&applied.desired.digest) {
            // Records of hooks belong to the release that defines the hooks.
            self.ledger.hooks.clear();
        }
        self.ledger.applied = Some(applied);
        self.await_confirmation(&report, now);
        match self.ledger.running.as_mut().filter(|_| unchanged) {
            Some(running) => running.unchanged = true,
            None => {
                self.ledger.published = report.applier.published.as_ref().map(published::tag);
                // A run with tags proves nothing about the rest of the release.
                if Cause::options(&report.causes).tags.is_empty() {
                    self.ledger.drift = None;
                }
                self.store_report(report);
            }
        }
        self.begin_checks(now);
    }

    /// True if a timed run has left everything as the server knows it. It is not reported: without changes, a fleet causes
    /// no writes to the store.
    fn is_unchanged(&self, report: &UnsentReport, applied: &AppliedRelease) -> bool {
        let is_timed = self.ledger.running.as_ref().is_some_and(RunningRun::is_timed);
        let published = report.applier.published.as_ref().map(published::tag);
        is_timed
            && report.outcome == Outcome::Configured(RunResult::Unchanged)
            && self.ledger.last_validation.is_some()
            && self.ledger.applied.as_ref() == Some(applied)
            && self.ledger.last.as_ref().is_some_and(|last| last.lookups == report.lookups)
            && self.ledger.published == published
    }

    pub(super) fn begin_checks(&mut self, now: EventTime) {
        if let Some(run) = &mut self.ledger.running {
            run.phase = RunPhase::Validating;
        }
        self.save();
        self.publish(now);
    }

    /// A run has ended.
    pub(super) fn finished(&mut self, report: UnsentReport, last: PreviousRun, now: EventTime) -> QueueEvent {
        let reason = report.reason.as_ref().map(ToString::to_string).unwrap_or_default();
        let (phase, result) = (report.outcome.phase(), report.outcome.word());
        match last.end {
            LedgerRunEnd::Validated | LedgerRunEnd::Pending => {
                tracing::info!(run = %report.run, result, reason, "{phase}")
            }
            LedgerRunEnd::Failed => tracing::warn!(run = %report.run, result, reason, "{phase}"),
        }
        let known_validation = self.ledger.last_validation.clone();
        match report.outcome {
            Outcome::Validated(_) => self.ledger.last_validation = Some(ValidationRecord::from(&report)),
            Outcome::Configured(_) | Outcome::Previewed(_) => self.clear_partly_applied(&report, &last),
        }
        if last.end == LedgerRunEnd::Validated {
            let (version, digest) = (report.version.clone(), report.digest.clone());
            self.ledger.local = Some(LocalVersion { version, digest });
        }
        self.await_confirmation(&report, now);
        // An agent that starts makes a full run after a lost one. Later on, it is retried with backoff as after any failure.
        let event = if last.lost && self.adopted {
            let run = report.run.clone();
            QueueEvent::AdoptionEnded { causes: vec![Cause::AgentStarted, Cause::Interrupted { run }] }
        } else {
            QueueEvent::Finished
        };
        let unchanged = self.ledger.running.as_ref().is_some_and(|running| running.unchanged);
        if !unchanged
            || !matches!(report.outcome, Outcome::Validated(_))
            || self.ledger.last_validation != known_validation
        {
            self.store_report(report);
        }
        self.ledger.last = Some(last);
        if let Some(snapshot) = self.running_snapshot.take() {
            self.last_snapshot = Some(snapshot);
        }
        self.free_slot();
        event
    }

    /// Clears the applied release after a run of another version failed half way. The node is then at neither version:
    /// there is nothing to validate and no hook to run until a run succeeds.
    fn clear_partly_applied(&mut self, report: &UnsentReport, last: &PreviousRun) {
        let applied = self.ledger.applied.as_ref().map(|applied| &applied.desired.version);
        if last.end == LedgerRunEnd::Failed
            && applied != Some(&report.version)
            && !status_move::applied_nothing(report.outcome, report.reason.as_ref())
        {
            self.ledger.applied = None;
            self.ledger.hooks.clear();
        }
    }

    /// A preview has ended: its requests are answered, and nothing else has changed. A timed one is reported only if it found
    /// other drift than the last one.
    pub(super) fn previewed(&mut self, mut report: UnsentReport) {
        tracing::info!(run = %report.run, result = report.outcome.word(), "previewed");
        report.lookups = self.ledger.watched(self.snapshot.as_deref());
        let Ledger { previews, preview_releases, .. } = &mut self.ledger;
        previews.retain(|cause| !report.causes.contains(cause));
        let is_requested = |release: &DesiredState| {
            previews
                .iter()
                .filter_map(Cause::own_options)
                .any(|options| options.version.as_ref() == Some(&release.version))
        };
        preview_releases.retain(is_requested);
        let mut is_known = false;
        if report.causes == [Cause::Schedule] {
            let drift = drift::digest(report.outcome, &report.applier.changes, report.reason.as_ref());
            is_known = self.ledger.drift == drift;
            self.ledger.drift = drift;
        }
        if !is_known {
            self.store_report(report);
        }
        self.running_snapshot = None;
        self.free_slot();
    }

    /// A periodic validation has ended. It is reported only if its result differs from the last one, and if it proves
    /// something.
    pub(super) fn validated(&mut self, report: Option<UnsentReport>) {
        self.running_snapshot = None;
        self.validations += u64::from(self.timings.first == FirstWork::Checks);
        let failed_version =
            self.ledger.last.as_ref().and_then(|last| failed_version(last, self.ledger.desired.as_ref()));
        let lost = self.ledger.last.as_ref().is_some_and(|last| last.lost);
        let proves = |report: &UnsentReport| {
            report.outcome != Outcome::Validated(Verdict::Passed) || (!lost && failed_version != Some(&report.version))
        };
        if let Some(mut report) = report.filter(proves) {
            report.lookups = self.ledger.watched(self.snapshot.as_deref());
            let result = ValidationRecord::from(&report);
            // A failed hook whose trigger is gone does not run again. This report then clears its failure.
            let hooks_cleared = self.view().hooks_due().is_empty() && hooks::clear_failures(&mut self.ledger.hooks);
            let changed = hooks_cleared
                || self.has_unreported_rollback_failure()
                || self.ledger.last_validation.as_ref() != Some(&result);
            self.update_last_run(&report);
            if changed {
                let failed = result.failed.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                match report.outcome.word() {
                    word if failed.is_empty() => tracing::info!(run = %report.run, "periodic validation: {word}"),
                    word => tracing::warn!(run = %report.run, failed, "periodic validation: {word}"),
                }
                self.ledger.last_validation = Some(result);
                self.store_report(report);
            }
        }
        self.free_slot();
    }

    /// Hooks have ended, and the checks after them.
    pub(super) fn hooks_finished(&mut self, mut report: UnsentReport, results: &[HookResult]) {
        let hooks = self.ledger.applied.as_ref().map(|applied| applied.hooks.clone()).unwrap_or_default();
        let snapshot = self.running_snapshot.take();
        for result in results {
            let hook = hooks.iter().find(|hook| hook.name == result.name);
            let (Some(hook), Some(snapshot)) = (hook, snapshot.as_deref()) else { continue };
            let record = self.ledger.hooks.entry(hook.name.clone()).or_default();
            let values = hooks::values(&hook.keys, snapshot);
            match result.verdict {
                Verdict::Passed => {
                    tracing::info!(run = %report.run, hook = hook.name, "hook succeeded");
                    record.succeeded_with = values;
                    record.failed_with.clear();
                    record.failures = 0;
                }
                Verdict::Failed => {
                    tracing::warn!(run = %report.run, hook = hook.name, message = result.message, "hook failed");
                    record.failed_with = values;
                    record.failures = record.failures.saturating_add(1);
                }
            }
        }
        report.lookups = self.ledger.watched(self.snapshot.as_deref());
        match report.outcome {
            Outcome::Validated(_) => {
                self.update_last_run(&report);
                self.ledger.last_validation = Some(ValidationRecord::from(&report));
            }
            Outcome::Configured(_) | Outcome::Previewed(_) => {}
        }
        self.store_report(report);
        self.free_slot();
    }

    /// Work was given up for a newer desired state. Its causes join those that wait; a newer one of the same kind counts.
    pub(super) fn superseded(&mut self) {
        self.running_snapshot = None;
        if let Some(running) = self.ledger.running.take() {
            tracing::info!(run = %running.run, version = %running.version, "superseded by a newer desired state");
            let (joined, waiting) = match running.work {
                Work::Run => (running.causes, &mut self.schedule.waiting),
                // A timed preview is one of the release that the node has validated.
                Work::Preview => {
                    let requested = running.causes.into_iter().filter(|cause| *cause != Cause::Schedule);
                    (requested.collect(), &mut self.schedule.previews)
                }
                // The run of the newer desired state includes both.
                Work::Hooks | Work::Validation => (Vec::new(), &mut self.schedule.waiting),
            };
            let newer = std::mem::replace(waiting, joined);
            newer.into_iter().for_each(|cause| merge(waiting, cause));
            self.ledger.waiting.clone_from(&self.schedule.waiting);
        }
        self.save();
    }

    /// Applies a later validation to the last run. A failed validation leads to a run, as any failure does. If one passes
    /// before that, the run is not needed.
    fn update_last_run(&mut self, report: &UnsentReport) {
        let passed = report.outcome == Outcome::Validated(Verdict::Passed);
        if passed {
            let (version, digest) = (report.version.clone(), report.digest.clone());
            self.ledger.local = Some(LocalVersion { version, digest });
        }
        if let Some(last) = &mut self.ledger.last {
            apply_later_validation(last, passed, report);
        }
    }

    /// The agent has started. Work that is in the ledger is adopted.
    pub(super) fn start_up(&mut self, now: EventTime) -> QueueEvent {
        let adopted = self.ledger.running.clone().and_then(|running| self.adopt(running));
        self.update_pause_end(now);
        self.resume_confirmation(now);
        let (waiting, previews) = (self.ledger.waiting.clone(), self.ledger.previews.clone());
        QueueEvent::Started { adopted, waiting, previews }
    }

    fn adopt(&mut self, run: RunningRun) -> Option<(Work, RunPhase)> {
        let stored = run.order.as_ref().map(|order| (order.desired.clone(), order.role.clone()));
        let Some((desired, role)) = stored.or_else(|| self.ledger.target().zip(self.ledger.role.clone())) else {
            // A ledger that no agent has written: there is no run without a desired state.
            self.ledger.running = None;
            return None;
        };
        tracing::info!(run = %run.run, version = %run.version, "adopting the work of an earlier agent");
        self.adopted = true;
        let adopted = (run.work, run.phase);
        let snapshot = self.running_snapshot.clone().or_else(|| self.snapshot.clone()).unwrap_or_default();
        let (watched, fallback) = (self.watched_keys(), self.fallback());
        let names = self.node.names(self.ledger.host_name.as_ref());
        let order = WorkOrder { run, desired, role, names, snapshot, watched, fallback, adopted: true };
        self.effects.push(Effect::AdoptWork(Box::new(order)));
        Some(adopted)
    }

    /// Adopted work has ended without a result. The causes of a run that was not started lead to the next one. Previews and
    /// hooks are still requested, and checks are scheduled again.
    pub(super) fn adoption_ended(&mut self) -> QueueEvent {
        let mut causes = Vec::new();
        if let Some(running) = self.ledger.running.take().filter(|running| running.work == Work::Run) {
            causes = running.causes;
            merge(&mut causes, Cause::AgentStarted);
        }
        self.running_snapshot = None;
        self.free_slot();
        QueueEvent::AdoptionEnded { causes }
    }

    fn free_slot(&mut self) {
        self.ledger.running = None;
        self.adopted = false;
        self.save();
    }

    /// Writes a report to the outbox. The lookups in it are the keys whose change wakes the node.
    fn store_report(&mut self, mut report: UnsentReport) {
        self.ledger.watch_hooks(&mut report.lookups, self.snapshot.as_deref());
        self.report_rollback_failure(&mut report);
        self.effects.push(Effect::StoreReport(Box::new(report)));
        self.effects.push(Effect::WakeSender);
    }
}

/// The version whose last run failed in the applier. Checks that pass do not prove that it is applied: only the next run
/// does, which a pause may hold back.
fn failed_version<'d>(last: &PreviousRun, desired: Option<&'d DesiredState>) -> Option<&'d Version> {
    let has_failed = last.end == LedgerRunEnd::Failed && !last.only_checks_failed;
    desired.filter(|desired| has_failed && desired.generation == last.generation).map(|desired| &desired.version)
}

/// Updates the last run after a later validation.
fn apply_later_validation(last: &mut PreviousRun, passed: bool, report: &UnsentReport) {
    match last.end {
        LedgerRunEnd::Validated | LedgerRunEnd::Pending if !passed => {
            last.end = LedgerRunEnd::Failed;
            last.only_checks_failed = true;
            last.attempt += 1;
            last.first_failure.clone_from(&report.first_failure);
        }
        // A pending run is still to be made: these were the checks of the previous release.
        LedgerRunEnd::Failed if passed && last.only_checks_failed && last.needs.is_empty() => {
            last.end = LedgerRunEnd::Validated;
            last.only_checks_failed = false;
            last.attempt = 0;
            last.first_failure = None;
        }
        LedgerRunEnd::Validated | LedgerRunEnd::Pending | LedgerRunEnd::Failed => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use muster_core::names::RunId;
    use muster_core::report::reason::Need;

    use crate::testing::report;

    fn last(end: LedgerRunEnd, needs: Vec<Need>) -> PreviousRun {
        PreviousRun {
            run: RunId::new("r1").unwrap(),
            generation: muster_core::txn::Generation { epoch: 1, number: 1 },
            end,
            needs,
            lookups: muster_core::lookup::Lookups::new(),
            attempt: 0,
            first_failure: None,
            only_checks_failed: false,
            lost: false,
        }
    }

    #[test]
    fn passing_checks_do_not_prove_a_version_whose_run_failed() {
        let desired = |number| DesiredState {
            generation: muster_core::txn::Generation { epoch: 1, number },
            version: Version::new("v1").unwrap(),
            digest: "sha256:x".into(),
            serial: 1,
            allow_older: false,
            confirm_within: None,
            manifest: muster_core::release::manifest::SignedManifest::default(),
        };
        let mut failed = last(LedgerRunEnd::Failed, Vec::new());
        assert_eq!(failed_version(&failed, Some(&desired(1))), Some(&desired(1).version));
        assert_eq!(failed_version(&failed, Some(&desired(2))), None, "another run is due");
        failed.only_checks_failed = true;
        assert_eq!(failed_version(&failed, Some(&desired(1))), None, "the applier has succeeded");
        assert_eq!(failed_version(&last(LedgerRunEnd::Validated, Vec::new()), Some(&desired(1))), None);
    }

    #[test]
    fn checks_of_the_previous_release_do_not_replace_a_pending_run() {
        let report = report(1);
        let mut ended = last(LedgerRunEnd::Validated, Vec::new());
        apply_later_validation(&mut ended, false, &report);
        assert_eq!((ended.end, ended.attempt), (LedgerRunEnd::Failed, 1));
        apply_later_validation(&mut ended, true, &report);
        assert_eq!((ended.end, ended.attempt), (LedgerRunEnd::Validated, 0));

        let mut waits = last(LedgerRunEnd::Pending, vec![Need::Other { reason: "a licence".into() }]);
        apply_later_validation(&mut waits, false, &report);
        apply_later_validation(&mut waits, true, &report);
        assert_eq!(waits.end, LedgerRunEnd::Failed, "the run is made again and reports its needs");
    }
}
