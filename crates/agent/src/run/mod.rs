//! One run: release → snapshot → applier → report → validation → report.

pub mod directory;
pub mod environment;
pub mod log;
mod lookups;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use muster_core::lookups::Lookups;
use muster_core::names::Role;
use muster_core::reason::Reason;
use muster_core::report::{CheckResult, Outcome, Report, RunResult, Verdict};
use muster_core::snapshot::Snapshot;

use crate::applier::{Applied, Job, Mode, apply};
use crate::clock;
use crate::ledger::{LastRun, RunEnd, RunningRun};
use crate::node::Node;
use crate::process::children::Children;
use crate::queue::task::Message;
use crate::redact::Redactor;
use crate::release::{self, Release};
use crate::run::directory::RunDirectory;
use crate::run::log::BoundedLog;
use crate::validation::{Checked, validate};

/// What the queue asks for.
#[derive(Clone, Debug)]
pub struct Order {
    pub run: RunningRun,
    pub role: Role,
    /// The one state of the fleet that the run sees.
    pub snapshot: Arc<Snapshot>,
}

/// Carries out orders, one at a time, for ever.
pub async fn run(
    node: Arc<Node>,
    children: Children,
    mut orders: mpsc::Receiver<Order>,
    queue: mpsc::Sender<Message>,
    cancel: CancellationToken,
) {
    loop {
        let order = tokio::select! {
            () = cancel.cancelled() => return,
            order = orders.recv() => order,
        };
        let Some(order) = order else { return };
        let said = execute(&node, &children, &order, &queue, &cancel).await;
        let message = said.unwrap_or(Message::Interrupted);
        // The queue is gone only when the agent ends.
        if queue.send(message).await.is_err() {
            return;
        }
    }
}

/// Makes one run. None if the agent is to end: the run was cut off, and nothing of it is left.
async fn execute(
    node: &Arc<Node>,
    children: &Children,
    order: &Order,
    queue: &mpsc::Sender<Message>,
    cancel: &CancellationToken,
) -> Option<Message> {
    let run = &order.run;
    let causes: Vec<_> = run.causes.iter().map(ToString::to_string).collect();
    tracing::info!(run = %run.run, version = %run.version, causes = causes.join("; "), "run");

    let (directory, release) = match prepare(node, order).await {
        Ok(prepared) => prepared,
        Err(reason) => {
            let report = configured(node, order, Applied::failed(reason), Lookups::new(), BoundedLog::default());
            return Some(finished(order, report));
        }
    };
    let secrets = Redactor::of(&order.snapshot);
    let job = Job {
        node,
        role: &order.role,
        version: &run.version,
        run: &run.run,
        directory: &directory,
        release: &release,
        mode: Mode::Apply,
        secrets: &secrets,
    };
    let applied = apply(&job, children, cancel).await?;
    let lookups = lookups::read(&directory.lookups(), &order.snapshot, applied.reason.as_ref());
    let log = log::of_applier(&directory, &release.directory, &secrets);
    let report = configured(node, order, applied, lookups, log);
    match report.outcome {
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) => {}
        Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Validated(_) | Outcome::Previewed(_) => {
            return Some(finished(order, report));
        }
    }

    // Nothing more happens before the first report is on disk.
    let (written, ack) = oneshot::channel();
    queue.send(Message::Configured { report: Box::new(report.clone()), written }).await.ok()?;
    ack.await.ok()?;
    let checks = validate(&job, children, cancel).await?;
    Some(finished(order, validated(order, &job, report, checks)))
}

/// Everything that must be there before the applier starts.
async fn prepare(node: &Arc<Node>, order: &Order) -> Result<(RunDirectory, Release), Reason> {
    let (shared, run) = (Arc::clone(node), order.run.clone());
    // Copying and proving a large release takes a while, and the stream must go on.
    let prepared = tokio::task::spawn_blocking(move || {
        release::prepare(&shared.layout.releases(), &shared.releases, &run.version, &run.digest)
    });
    let release = prepared.await.map_err(|error| Reason::Machine { problem: error.to_string() })??;
    let machine = |error: crate::durable::WriteError| Reason::Machine { problem: error.in_one_line() };
    std::fs::create_dir_all(&node.root).map_err(|error| Reason::Machine {
        problem: format!("cannot make the node's root {}: {error}", node.root.display()),
    })?;
    let directory = RunDirectory::create(&node.layout.runs(), &order.run.run).map_err(machine)?;
    directory.write_snapshot(node, &order.role, &order.run.version, &order.snapshot).map_err(machine)?;
    Ok((directory, release))
}

fn configured(node: &Node, order: &Order, applied: Applied, lookups: Lookups, log: BoundedLog) -> Report {
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
        ended: clock::now(),
        counts: applied.counts,
        errors: applied.errors,
        changes: applied.changes,
        first_failure: None,
        checks: Vec::new(),
        hooks: Vec::new(),
        published: applied.published,
        facts: node.facts(),
        lookups,
        log: log.finish(),
    }
}

fn validated(order: &Order, job: &Job<'_>, configured: Report, checked: Vec<Checked>) -> Report {
    let failed = checked.iter().filter(|checked| checked.result.verdict == Verdict::Failed);
    let failed: Vec<String> = failed.map(|checked| checked.result.name.clone()).collect();
    let mut log = BoundedLog::without(job.secrets);
    if checked.is_empty() {
        log.line(&format!(
            "version {} has no checks for role {}: there is nothing to prove",
            order.run.version, order.role
        ));
    }
    for Checked { number, result: check } in &checked {
        let word = match check.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
        };
        log.line(&format!("check {} {word} after {} ms: {}", check.name, check.millis, check.message));
        let output = job.directory.check_output(*number);
        // What a check says last is in its message already; most say no more.
        if std::fs::metadata(&output).is_ok_and(|output| output.len() > check.message.len() as u64 + 1) {
            log.lines_of(&output, "  | ");
        }
    }
    let checks: Vec<CheckResult> = checked.into_iter().map(|checked| checked.result).collect();
    let passed = failed.is_empty();
    Report {
        seq: order.run.seq + 1,
        outcome: Outcome::Validated(if passed { Verdict::Passed } else { Verdict::Failed }),
        reason: if passed { None } else { Some(Reason::ChecksFailed { names: failed }) },
        attempt: if passed { 0 } else { order.run.failures + 1 },
        ended: clock::now(),
        checks,
        log: log.finish(),
        ..configured
    }
}

/// The last report of a run, and what of it the next decisions need.
fn finished(order: &Order, report: Report) -> Message {
    let end = match report.outcome {
        Outcome::Validated(Verdict::Passed) => RunEnd::Validated,
        Outcome::Configured(RunResult::Pending) => RunEnd::Pending,
        Outcome::Configured(RunResult::Failed) | Outcome::Validated(Verdict::Failed) => RunEnd::Failed,
        // Not the last report of a run; taken for what is safe.
        Outcome::Configured(RunResult::Unchanged | RunResult::Changed) | Outcome::Previewed(_) => RunEnd::Failed,
    };
    let needs = match &report.reason {
        Some(Reason::Waiting { needs }) => needs.clone(),
        _ => Vec::new(),
    };
    let last = LastRun {
        run: order.run.run.clone(),
        generation: order.run.generation,
        end,
        needs,
        lookups: report.lookups.clone(),
        attempt: report.attempt,
    };
    Message::Finished { report: Box::new(report), last: Box::new(last) }
}
