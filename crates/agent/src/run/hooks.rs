//! Hooks: executables of the release that react to a change. One after the other, since they may touch the same things.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use muster_core::release::spec::Hook;
use muster_core::report::{HookResult, Verdict};

use crate::applier::Job;
use crate::process::children::Children;
use crate::process::mark::{self, Mark};
use crate::process::supervise::{Ended, Leftovers, Program, supervise};
use crate::queue::hooks::HookOn;
use crate::run::{environment, log};

/// What an executable says last is what it means.
const LINES: usize = 5;

/// Runs those hooks that have something to react to. None if the agent is to end.
pub(super) async fn run_all(
    job: &Job<'_>,
    due: &[HookOn],
    children: &Children,
    cancel: &CancellationToken,
) -> Option<Vec<HookResult>> {
    let mut results = Vec::new();
    for (number, on) in due.iter().enumerate() {
        let hook = job.release.spec.hooks.iter().find(|hook| hook.name() == on.name && hook.is_for(job.role));
        // The release was proved to be the one that was applied, so its hooks are there.
        let Some(hook) = hook else { continue };
        let started = Instant::now();
        let outcome = one(job, number, hook, &on.keys, children, cancel).await?;
        let (verdict, message) = match outcome {
            Ok(message) => (Verdict::Passed, message),
            Err(message) => (Verdict::Failed, message),
        };
        let message = job.secrets.text(&message).into_owned();
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        results.push(HookResult { name: on.name.clone(), keys: on.keys.clone(), verdict, message, millis });
    }
    Some(results)
}

async fn one(
    job: &Job<'_>,
    number: usize,
    hook: &Hook,
    keys: &[String],
    children: &Children,
    cancel: &CancellationToken,
) -> Option<Result<String, String>> {
    let mut environment = environment::of(job);
    environment.push(("MUSTER_HOOK".to_owned(), hook.name().into()));
    environment.push(("MUSTER_HOOK_KEY".to_owned(), keys.first().cloned().unwrap_or_default().into()));
    environment.push(("MUSTER_HOOK_KEYS".to_owned(), keys.join("\n").into()));
    let deadline = Duration::try_from(hook.deadline).unwrap_or_default();
    let program = Program {
        path: job.release.directory.join(&hook.run),
        args: Vec::new(),
        directory: job.release.directory.clone(),
        environment,
        output: job.directory.hook_output(number),
        mark: Mark::new(environment::RUN_ID, job.run.as_str()),
        deadline,
        grace: mark::GRACE,
        // It may start a service anew.
        leftovers: Leftovers::Stay,
    };
    let path = &hook.run;
    let ended = supervise(&program, children, cancel).await;
    let said = log::last_lines(&program.output, LINES).join("\n");
    let with_output = |what: String| if said.is_empty() { what } else { format!("{what}: {said}") };
    Some(match ended {
        Ended::Exited(0) if said.is_empty() => Ok(format!("{path} ended with exit code 0")),
        Ended::Exited(0) => Ok(said),
        Ended::Exited(code) => Err(with_output(format!("{path} ended with exit code {code}"))),
        Ended::Killed(signal) => Err(with_output(format!("{path} was ended from outside by signal {signal}"))),
        Ended::Deadline => Err(with_output(format!(
            "{path} was still running at its deadline of {} s and was ended",
            deadline.as_secs_f32()
        ))),
        Ended::Cancelled => return None,
        Ended::NotStarted(error) => Err(format!("{path} of the release cannot be started: {error}")),
    })
}
