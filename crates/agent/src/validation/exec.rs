//! Exec check: passes if an executable of the release exits with 0. It runs once.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::applier::Job;
use crate::process::children::Children;
use crate::process::mark::{self, Mark};
use crate::process::supervise::{Leftovers, Program, ProgramEnd, supervise};
use crate::run::{environment, log};

/// Number of output lines in the message of a check.
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
    let mut environment = environment::variables(job);
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
        // A check must leave no processes behind.
        leftovers: Leftovers::End,
    };
    let end = supervise(&program, children, cancel).await;
    let output = log::last_lines(&program.output, LINES).join("\n");
    let with_output = |what: String| if output.is_empty() { what } else { format!("{what}: {output}") };
    match end {
        ProgramEnd::Exited(0) if output.is_empty() => Ok(format!("{path} ended with exit code 0")),
        ProgramEnd::Exited(0) => Ok(output),
        ProgramEnd::Exited(code) => Err(with_output(format!("{path} ended with exit code {code}"))),
        ProgramEnd::Killed(signal) => Err(with_output(format!("{path} was killed by signal {signal}"))),
        ProgramEnd::Deadline => Err(with_output(format!(
            "{path} was still running at its deadline of {} s and was ended",
            deadline.as_secs_f32()
        ))),
        ProgramEnd::Cancelled => Err("the agent shuts down".to_owned()),
        ProgramEnd::NotStarted(error) => Err(format!("{path} of the release cannot be started: {error}")),
    }
}
