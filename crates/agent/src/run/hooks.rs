//! Runs hooks: executables of the release that react to a changed key. They run one after the other, because they may
//! touch the same files.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use muster_core::lookup::Lookups;
use muster_core::release::spec::Hook;
use muster_core::report::reason::RunReason;
use muster_core::report::{HookResult, Verdict};
use muster_supervisor::files::{PackagePolicy, ProgramEnd, ProgramFile, VERSION};

use crate::applier::{ApplierResult, Job};
use crate::process;
use crate::process::supervised::{self, Launcher, SupervisedEnd};
use crate::queue::hooks::HookTrigger;
use crate::queue::io::Input;
use crate::queue::task::QueueMessage;
use crate::release::NotReady;
use crate::report::unsent::UnsentReport;
use crate::run::log::{self, BoundedLog};
use crate::run::{
    WorkOrder, WorkSlot, configured, environment, prepare, record_validated, report_builder, secrets_of_run, validated,
    without_applier,
};
use crate::validation::validate;

/// Number of output lines in the message of a hook.
const LINES: usize = 5;

/// Runs hooks and, if they succeed, the checks: a hook may have broken something. `None` if the agent shuts down.
pub(super) async fn run(slot: &WorkSlot, order: &WorkOrder) -> Option<Input> {
    let WorkSlot { node, children, launcher, queue, cancel, .. } = slot;
    let run = &order.run;
    let (directory, release) = match prepare(slot, order).await? {
        Ok(prepared) => prepared,
        Err(NotReady::Superseded) => return Some(Input::Superseded),
        Err(NotReady::Failed(reason)) => {
            let results = run.hooks.iter().map(|hook| not_run(hook, &reason)).collect();
            let report = configured(node, order, ApplierResult::failed(reason), Lookups::new(), BoundedLog::default());
            return Some(finished(order, report, results));
        }
    };
    let secrets = secrets_of_run(node, order).await;
    let job = order.job(node, &directory, &release, &secrets);
    let results = run_all(&job, &run.hooks, launcher, cancel).await?;
    let mut log = BoundedLog::redacting(&secrets);
    for (number, result) in results.iter().enumerate() {
        let word = match result.verdict {
            Verdict::Passed => "succeeded",
            Verdict::Failed => "failed",
        };
        let keys = result.keys.join(", ");
        log.line(&format!("hook {} {word} after {} ms ({keys}): {}", result.name, result.millis, result.message));
        log.add_file(&directory.hook_output(number), "  | ");
    }
    let failed = results.iter().filter(|result| result.verdict == Verdict::Failed);
    let names: Vec<_> = failed.map(|result| result.name.clone()).collect();
    if !names.is_empty() {
        // As after a failed run no checks run, and the last validation still counts.
        let report =
            configured(node, order, ApplierResult::failed(RunReason::HooksFailed { names }), Lookups::new(), log);
        return Some(finished(order, report, results));
    }
    let (message, acknowledged) = QueueMessage::with_ack(Input::HooksSucceeded);
    queue.send(message).await.ok()?;
    acknowledged.await.ok()?;
    let checks = validate(&job, children, cancel, |_| ()).await?;
    let mut report = validated(order, &job, without_applier(node, order), checks);
    report.log = log.finish() + &report.log;
    record_validated(slot, order, &report);
    Some(finished(order, report, results))
}

fn not_run(hook: &HookTrigger, reason: &RunReason) -> HookResult {
    let (name, keys) = (hook.name.clone(), hook.keys.clone());
    HookResult { name, keys, verdict: Verdict::Failed, message: reason.to_string(), millis: 0 }
}

fn finished(order: &WorkOrder, mut report: UnsentReport, results: Vec<HookResult>) -> Input {
    report.first_failure = report_builder::first_failure(&order.run, &report);
    report.hooks.clone_from(&results);
    Input::HooksFinished { report: Box::new(report), results }
}

/// Runs the hooks that are due. `None` if the agent shuts down.
async fn run_all(
    job: &Job<'_>,
    due: &[HookTrigger],
    launcher: &Launcher,
    cancel: &CancellationToken,
) -> Option<Vec<HookResult>> {
    let mut results = Vec::new();
    for (number, trigger) in due.iter().enumerate() {
        let hook = job.release.spec.hooks.iter().find(|hook| hook.name() == trigger.name && hook.is_for(job.role));
        // The release was verified to be the applied one, so its hooks are there.
        let Some(hook) = hook else { continue };
        let started = Instant::now();
        let outcome = run_one(job, number, hook, &trigger.keys, launcher, cancel).await?;
        let (verdict, message) = match outcome {
            Ok(message) => (Verdict::Passed, message),
            Err(message) => (Verdict::Failed, message),
        };
        let message = job.secrets.text(&message).into_owned();
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        results.push(HookResult { name: trigger.name.clone(), keys: trigger.keys.clone(), verdict, message, millis });
    }
    Some(results)
}

async fn run_one(
    job: &Job<'_>,
    number: usize,
    hook: &Hook,
    keys: &[String],
    launcher: &Launcher,
    cancel: &CancellationToken,
) -> Option<Result<String, String>> {
    let mut environment = environment::variables(job);
    environment.push(("MUSTER_HOOK".to_owned(), hook.name().into()));
    environment.push(("MUSTER_HOOK_KEY".to_owned(), keys.first().cloned().unwrap_or_default().into()));
    environment.push(("MUSTER_HOOK_KEYS".to_owned(), keys.join("\n").into()));
    let deadline = Duration::try_from(hook.deadline).unwrap_or_default();
    let output = job.directory.hook_output(number);
    let extension = Duration::try_from(job.release.spec.deadline_extension).unwrap_or_default();
    let program = ProgramFile {
        version: VERSION,
        path: job.release.directory.join(&hook.run).into(),
        args: Vec::new(),
        directory: job.release.directory.clone().into(),
        environment: environment::for_supervisor(environment),
        output: output.clone().into(),
        mark: (environment::RUN_ID.to_owned(), job.run.as_str().to_owned()),
        deadline,
        grace: process::GRACE,
        packages: PackagePolicy::of_host(extension, false),
        pid_file: None,
    };
    let path = &hook.run;
    let unit = format!("muster-run-{}-hook-{number}", job.run);
    let end = launcher.run(&job.directory.hook(number), &unit, &program, cancel).await?;
    let output = log::last_lines(&output, LINES).join("\n");
    let with_output = |what: String| if output.is_empty() { what } else { format!("{what}: {output}") };
    let end = match end {
        SupervisedEnd::Ended(end) => end.end,
        SupervisedEnd::Lost => return Some(Err(with_output(format!("{path} was lost: its supervisor was killed")))),
        SupervisedEnd::NotStarted { problem } => {
            return Some(Err(format!("the supervisor of {path} cannot be started: {problem}")));
        }
    };
    Some(match end {
        ProgramEnd::Exited { code: 0 } if output.is_empty() => Ok(format!("{path} ended with exit code 0")),
        ProgramEnd::Exited { code: 0 } => Ok(output),
        ProgramEnd::Exited { code } => Err(with_output(format!("{path} ended with exit code {code}"))),
        ProgramEnd::Killed { signal } => Err(with_output(format!("{path} was killed by signal {signal}"))),
        ProgramEnd::Deadline => Err(with_output(format!(
            "{path} was still running at its deadline of {} s and was ended",
            deadline.as_secs_f32()
        ))),
        ProgramEnd::NotStarted { errno, message } => {
            let error = supervised::start_error(errno, message);
            Err(format!("{path} of the release cannot be started: {error}"))
        }
    })
}
