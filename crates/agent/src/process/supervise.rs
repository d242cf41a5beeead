//! Runs one program to its end, its deadline or the agent's end.

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::process::children::Children;
use crate::process::mark::{self, Mark};

/// A program to run.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    pub args: Vec<std::ffi::OsString>,
    pub directory: PathBuf,
    /// All variables; nothing else is handed on.
    pub environment: Vec<(String, std::ffi::OsString)>,
    /// Takes standard output and standard error. A file and not a pipe: a service that the program leaves behind may hold
    /// it open for years.
    pub output: PathBuf,
    /// What every process of it carries.
    pub mark: Mark,
    pub deadline: Duration,
    /// How long its processes may take to end by themselves at the deadline.
    pub grace: Duration,
}

/// How it ended.
#[derive(Debug)]
pub enum Ended {
    Exited(i32),
    /// From outside.
    Killed(i32),
    /// It was still running, and was ended with all of its processes.
    Deadline,
    /// The agent is to end, so it was ended with all of its processes.
    Cancelled,
    NotStarted(io::Error),
}

/// Runs a program. Except after an orderly end nothing of it is left when this returns.
pub async fn supervise(program: &Program, children: &Children, cancel: &CancellationToken) -> Ended {
    if cancel.is_cancelled() {
        return Ended::Cancelled;
    }
    let output = File::create(&program.output).and_then(|file| Ok((file.try_clone()?, file)));
    let (out, err) = match output {
        Ok(files) => files,
        Err(error) => return Ended::NotStarted(error),
    };
    let mut command = Command::new(&program.path);
    command
        .args(&program.args)
        .current_dir(&program.directory)
        .env_clear()
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        // A terminal's Ctrl-C is for the agent, which ends the run in order.
        .process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ended::NotStarted(error),
    };
    let _own = child.id().map(|pid| children.own(pid));
    let ended = tokio::select! {
        status = child.wait() => status.map_or_else(Ended::NotStarted, of_status),
        () = tokio::time::sleep(program.deadline) => Ended::Deadline,
        () = cancel.cancelled() => Ended::Cancelled,
    };
    if !matches!(ended, Ended::Exited(_) | Ended::NotStarted(_)) {
        let grace =
            if matches!(ended, Ended::Cancelled) { mark::SHORT_GRACE.min(program.grace) } else { program.grace };
        mark::end_all(&program.mark, grace).await;
        // It has the mark, so it has ended, and this is at once; unless it is stuck in the kernel.
        let _ = child.try_wait();
    }
    ended
}

fn of_status(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, signal) => Ended::Killed(signal.unwrap_or_default()),
    }
}
