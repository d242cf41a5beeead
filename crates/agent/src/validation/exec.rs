//! Passes when an executable of the release exits 0. It runs once.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::applier::Job;
use crate::process::children::Children;
use crate::process::mark::{self, Mark};
use crate::process::supervise::{Ended, Leftovers, Program, supervise};
use crate::run::{environment, log};

/// What an executable says last is what it means.
const LINES: usize = 5;

pub(super) async fn check(
    job: &Job<'_>,
    number: usize,
    path: &str,
    deadline: Duration,
    children: &Children,
    cancel: &CancellationToken,
) -> Result<String, String> {
    let id = format!("{}/{number}", job.run);
    let mut environment = environment::of(job);
    environment.push((environment::CHECK_RUN.to_owned(), job.run.as_str().into()));
    environment.push((environment::CHECK_ID.to_owned(), id.clone().into()));
    let program = Program {
        path: job.release.directory.join(path),
        args: Vec::new(),
        directory: job.release.directory.clone(),
        environment,
        output: job.directory.check_output(number),
        mark: Mark::new(environment::CHECK_ID, id),
        deadline,
        grace: mark::SHORT_GRACE,
        // A check looks and leaves nothing behind; what it does leave would only look on.
        leftovers: Leftovers::End,
    };
    let ended = supervise(&program, children, cancel).await;
    let said = log::last_lines(&program.output, LINES).join("\n");
    let with_output = |what: String| if said.is_empty() { what } else { format!("{what}: {said}") };
    match ended {
        Ended::Exited(0) if said.is_empty() => Ok(format!("{path} ended with exit code 0")),
        Ended::Exited(0) => Ok(said),
        Ended::Exited(code) => Err(with_output(format!("{path} ended with exit code {code}"))),
        Ended::Killed(signal) => Err(with_output(format!("{path} was ended from outside by signal {signal}"))),
        Ended::Deadline => Err(with_output(format!(
            "{path} was still running at its deadline of {} s and was ended",
            deadline.as_secs_f32()
        ))),
        Ended::Cancelled => Err("the agent was ended".to_owned()),
        Ended::NotStarted(error) => Err(format!("{path} of the release cannot be started: {error}")),
    }
}
