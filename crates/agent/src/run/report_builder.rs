//! Builds the reports of a run, and the part of them that the next decision needs.

use jiff::Timestamp;
use muster_core::lookup::Lookups;
use muster_core::lookup::services::Services;
use muster_core::report::reason::RunReason;
use muster_core::report::shorten::shorten;
use muster_core::report::{CheckResult, FirstFailure, Outcome, ResourceError, RunResult, Verdict};

use crate::applier::ApplierResult;
use crate::config::AgentNode;
use crate::queue::io::Input;
use crate::report::unsent::{ApplierSummary, UnsentReport};
use crate::run::WorkOrder;
use crate::state::ledger::{LedgerRunEnd, PreviousRun, RunPhase, RunningRun};

/// Length of the message of a first failure, which is part of every report until a run succeeds.
const FIRST_FAILURE_MESSAGE: usize = 500;

/// The report of an applier that has ended.
pub fn configured(
    node: &AgentNode,
    order: &WorkOrder,
    applied: ApplierResult,
    lookups: Lookups,
    log: String,
    ended: Timestamp,
) -> UnsentReport {
    let run = &order.run;
    let failed = applied.result == RunResult::Failed;
    UnsentReport {
        node: node.name.clone(),
        seq: run.seq,
        run: run.run.clone(),
        outcome: Outcome::Configured(applied.result),
        version: run.version.clone(),
        digest: run.digest.clone(),
        generation: run.generation,
        causes: run.causes.clone(),
        reason: applied.reason,
        attempt: if failed { run.failures + 1 } else { 0 },
        started: run.started,
        ended,
        applier: ApplierSummary {
            counts: applied.counts,
            errors: applied.errors,
            changes: applied.changes,
            published: applied.published,
        },
        first_failure: None,
        checks: Vec::new(),
        hooks: Vec::new(),
        services: Services::new(),
        facts: node.facts(),
        lookups,
        log,
    }
}

/// The report of the checks after the applier, with the same sequence number. The second report of a run uses the next.
pub fn validated(
    order: &WorkOrder,
    configured: UnsentReport,
    checks: Vec<CheckResult>,
    log: String,
    ended: Timestamp,
) -> UnsentReport {
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Failed);
    let failed: Vec<String> = failed.map(|check| check.name.clone()).collect();
    let passed = failed.is_empty();
    UnsentReport {
        outcome: Outcome::Validated(if passed { Verdict::Passed } else { Verdict::Failed }),
        reason: if passed { None } else { Some(RunReason::ChecksFailed { names: failed }) },
        attempt: if passed { 0 } else { order.run.failures + 1 },
        ended,
        checks,
        log,
        ..configured
    }
}

/// The report of a preview.
pub fn previewed(report: UnsentReport) -> UnsentReport {
    let result = match report.outcome {
        Outcome::Configured(result) | Outcome::Previewed(result) => result,
        Outcome::Validated(_) => RunResult::Failed,
    };
    // A preview is no run, so it does not count as a failed attempt.
    UnsentReport {
        outcome: Outcome::Previewed(result),
        attempt: 0,
        applier: ApplierSummary { published: None, ..report.applier },
        ..report
    }
}

/// The last report of a run, and the part of it that the next decision needs.
pub fn finished(order: &WorkOrder, mut report: UnsentReport) -> Input {
    report.first_failure = first_failure(&order.run, &report);
    let end = match report.outcome {
        Outcome::Validated(Verdict::Passed) => LedgerRunEnd::Validated,
        Outcome::Configured(RunResult::Pending) => LedgerRunEnd::Pending,
        Outcome::Configured(RunResult::Failed) | Outcome::Validated(Verdict::Failed) => LedgerRunEnd::Failed,
        // Never the last report of a run; a failure is the safe reading.
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) | Outcome::Previewed(_) => LedgerRunEnd::Failed,
    };
    let needs = match &report.reason {
        Some(RunReason::Waiting { needs }) => needs.clone(),
        _ => Vec::new(),
    };
    let last = PreviousRun {
        run: order.run.run.clone(),
        generation: order.run.generation,
        end,
        needs,
        lookups: report.lookups.clone(),
        attempt: report.attempt,
        first_failure: report.first_failure.clone(),
        only_checks_failed: report.outcome == Outcome::Validated(Verdict::Failed),
        lost: matches!(report.reason, Some(RunReason::Lost { .. })),
    };
    Input::Finished { report: Box::new(report), last: Box::new(last) }
}

/// The first of the failures in a row that this report belongs to: that of an earlier run, or its own. It often says more
/// than the last one. `None` if the run did not fail.
pub fn first_failure(run: &RunningRun, report: &UnsentReport) -> Option<FirstFailure> {
    if report.attempt == 0 {
        return None;
    }
    let own = || {
        let reason = || report.reason.as_ref().map(ToString::to_string).unwrap_or_default();
        let from_reason = || ResourceError { message: reason(), ..ResourceError::default() };
        let check = || report.checks.iter().find_map(CheckResult::error);
        let mut error = report.applier.errors.first().cloned().or_else(check).unwrap_or_else(from_reason);
        error.message = shorten(&error.message, FIRST_FAILURE_MESSAGE);
        FirstFailure { run: report.run.clone(), at: report.ended, error }
    };
    Some(run.first_failure.clone().unwrap_or_else(own))
}

/// The end of a run that was lost: its applier has ended without a result. It counts as failed.
pub fn lost(node: &AgentNode, order: &WorkOrder, refreshes: Vec<String>, log: String, ended: Timestamp) -> Input {
    let reason = RunReason::Lost { run: order.run.run.clone(), refreshes };
    let report = configured(node, order, ApplierResult::failed(reason), previous_lookups(order), log, ended);
    let seq = match order.run.phase {
        RunPhase::Applying => order.run.seq,
        // The first number was used for the result of the applier.
        RunPhase::Validating => order.run.seq + 1,
    };
    finished(order, UnsentReport { seq, ..report })
}

/// Lookups of a run whose own are unknown: the same keys as before wake the node.
pub fn previous_lookups(order: &WorkOrder) -> Lookups {
    order.watched.iter().map(|key| (key.clone(), order.snapshot.tag(key))).collect()
}
