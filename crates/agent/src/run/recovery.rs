//! Recovers a run that was interrupted with its agent: ends its processes and builds its report.

use jiff::Timestamp;

use muster_core::report::reason::RunReason;
use muster_core::report::{Outcome, RunResult};

use crate::node::Node;
use crate::process::mark::{self, Mark};
use crate::report::unsent::{ApplierSummary, UnsentReport};
use crate::run::{environment, report_builder};
use crate::state::ledger::{LastRun, RunEnd, RunPhase, RunningRun};

/// The mark of the processes to end. After the applier has ended only the checks were interrupted, and services that the
/// applier started are kept.
fn mark_of(run: &RunningRun) -> Mark {
    match run.phase {
        RunPhase::Applying => Mark::new(environment::RUN_ID, run.run.as_str()),
        RunPhase::Validating => Mark::new(environment::CHECK_RUN, run.run.as_str()),
    }
}

pub async fn end_processes(run: &RunningRun) {
    mark::end_all(&mark_of(run), mark::SHORT_GRACE).await;
}

/// The report of an interrupted run. It is reported as failed in its first phase, also if the checks had begun: their
/// result is unknown, and an unfinished validation proves nothing against the node.
///
/// It uses the sequence number that was reserved for the run's last report. If that report was already written, the server
/// has it or receives one of the two. Both are true.
pub fn interrupted(node: &Node, run: &RunningRun, before: Option<&LastRun>, now: Timestamp) -> (UnsentReport, LastRun) {
    let attempt = run.failures + 1;
    let lookups = before.map(|last| last.lookups.clone()).unwrap_or_default();
    let phase = match run.phase {
        RunPhase::Applying => "the applier ran",
        RunPhase::Validating => "its checks ran",
    };
    let mut report = UnsentReport {
        node: node.name.clone(),
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
        applier: ApplierSummary::default(),
        first_failure: None,
        checks: Vec::new(),
        hooks: Vec::new(),
        facts: node.facts(),
        lookups: lookups.clone(),
        log: format!(
            "the agent was stopped while {phase}; the processes of the run were ended, and the run is made again\n"
        ),
    };
    report.first_failure = report_builder::first_failure(run, &report);
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
