//! What a run says of itself: its reports, and what of them the next decisions need. Pure.

use jiff::Timestamp;

use muster_core::lookup::Lookups;
use muster_core::report::reason::RunReason;
use muster_core::report::{CheckResult, Outcome, Report, RunResult, Verdict};

use crate::applier::Applied;
use crate::ledger::{LastRun, RunEnd};
use crate::node::Node;
use crate::queue::input::Input;
use crate::run::{Order, failure};

/// The report of an applier that has ended.
pub fn configured(
    node: &Node,
    order: &Order,
    applied: Applied,
    lookups: Lookups,
    log: String,
    ended: Timestamp,
) -> Report {
    let run = &order.run;
    let failed = applied.result == RunResult::Failed;
    Report {
        node: node.name.clone(),
        // The number of the incarnation is set when the report is sent: a server that was restored may give a new one.
        incarnation: 0,
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
        counts: applied.counts,
        errors: applied.errors,
        changes: applied.changes,
        first_failure: None,
        checks: Vec::new(),
        hooks: Vec::new(),
        published: applied.published,
        facts: node.facts(),
        lookups,
        log,
    }
}

/// The report of the checks after it, under the same number: a second one of a run takes the next.
pub fn validated(order: &Order, configured: Report, checks: Vec<CheckResult>, log: String, ended: Timestamp) -> Report {
    let failed = checks.iter().filter(|check| check.verdict == Verdict::Failed);
    let failed: Vec<String> = failed.map(|check| check.name.clone()).collect();
    let passed = failed.is_empty();
    Report {
        outcome: Outcome::Validated(if passed { Verdict::Passed } else { Verdict::Failed }),
        reason: if passed { None } else { Some(RunReason::ChecksFailed { names: failed }) },
        attempt: if passed { 0 } else { order.run.failures + 1 },
        ended,
        checks,
        log,
        ..configured
    }
}

/// The report of an applier that only said what it would do.
pub fn previewed(report: Report) -> Report {
    let result = match report.outcome {
        Outcome::Configured(result) | Outcome::Previewed(result) => result,
        Outcome::Validated(_) => RunResult::Failed,
    };
    // It is no run, so it is none of those in a row that have failed.
    Report { outcome: Outcome::Previewed(result), attempt: 0, published: None, ..report }
}

/// The last report of a run, and what of it the next decisions need.
pub fn finished(order: &Order, mut report: Report) -> Input {
    report.first_failure = failure::first(&order.run, &report);
    let end = match report.outcome {
        Outcome::Validated(Verdict::Passed) => RunEnd::Validated,
        Outcome::Configured(RunResult::Pending) => RunEnd::Pending,
        Outcome::Configured(RunResult::Failed) | Outcome::Validated(Verdict::Failed) => RunEnd::Failed,
        // Not the last report of a run; taken for what is safe.
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) | Outcome::Previewed(_) => RunEnd::Failed,
    };
    let needs = match &report.reason {
        Some(RunReason::Waiting { needs }) => needs.clone(),
        _ => Vec::new(),
    };
    let last = LastRun {
        run: order.run.run.clone(),
        generation: order.run.generation,
        end,
        needs,
        lookups: report.lookups.clone(),
        attempt: report.attempt,
        first_failure: report.first_failure.clone(),
        only_checks_failed: report.outcome == Outcome::Validated(Verdict::Failed),
    };
    Input::Finished { report: Box::new(report), last: Box::new(last) }
}
