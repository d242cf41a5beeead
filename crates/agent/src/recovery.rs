//! A run that was cut off, because its agent was ended: what is left of it is ended, and it is reported.

use jiff::Timestamp;

use muster_core::report::reason::RunReason;
use muster_core::report::{Counts, Outcome, Report, RunResult};

use crate::ledger::{LastRun, RunEnd, RunPhase, RunningRun};
use crate::node::Node;
use crate::process::mark::{self, Mark};
use crate::run::{environment, failure};

/// What still carries the mark of the run is not finished and never will be. After an orderly end of the applier only the
/// checks were left to cut off: services that it started are meant to stay.
fn mark_of(run: &RunningRun) -> Mark {
    match run.phase {
        RunPhase::Applying => Mark::new(environment::RUN_ID, run.run.as_str()),
        RunPhase::Validating => Mark::new(environment::CHECK_RUN, run.run.as_str()),
    }
}

pub async fn end_processes(run: &RunningRun) {
    mark::end_all(&mark_of(run), mark::SHORT_GRACE).await;
}

/// The report of a run that was cut off. It counts as failed, in its first phase whatever was reached: nothing is known
/// of its checks, and a validation that was not made says nothing against the node.
///
/// It takes the number that was set aside for the run's last report. If that one was written before the agent was ended
/// then the server has it, or gets it in place of this one, or has this one for a second telling: all are true.
pub fn interrupted(node: &Node, run: &RunningRun, before: Option<&LastRun>, now: Timestamp) -> (Report, LastRun) {
    let attempt = run.failures + 1;
    let lookups = before.map(|last| last.lookups.clone()).unwrap_or_default();
    let phase = match run.phase {
        RunPhase::Applying => "the applier ran",
        RunPhase::Validating => "its checks were made",
    };
    let mut report = Report {
        node: node.name.clone(),
        incarnation: 0,
        seq: run.seq + 1,
        run: run.run.clone(),
        outcome: Outcome::Configured(RunResult::Failed),
        version: run.version.clone(),
        digest: run.digest.clone(),
        generation: run.generation,
        causes: run.causes.clone(),
        reason: Some(RunReason::Interrupted { run: run.run.clone() }),
        attempt,
        started: run.started,
        ended: run.ended.unwrap_or(now),
        counts: Counts::default(),
        errors: Vec::new(),
        changes: Vec::new(),
        first_failure: None,
        checks: Vec::new(),
        hooks: Vec::new(),
        published: None,
        facts: node.facts(),
        lookups: lookups.clone(),
        log: format!("the agent was ended while {phase}; what was left of the run was ended, and it is made again\n"),
    };
    report.first_failure = failure::first(run, &report);
    let last = LastRun {
        run: run.run.clone(),
        generation: run.generation,
        end: RunEnd::Failed,
        needs: Vec::new(),
        lookups,
        attempt,
        first_failure: report.first_failure.clone(),
        only_checks_failed: false,
    };
    (report, last)
}
