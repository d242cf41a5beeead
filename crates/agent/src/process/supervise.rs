//! Runs one check until it exits, its deadline passes, or the agent shuts down. Appliers and hooks run under a
//! [supervisor](super::supervised) instead.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use muster_marked::Process;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::process;
use crate::process::ProcessMark;
use crate::process::children::Children;
use crate::process::output::PipeOutput;

/// Time to reap a killed process. One that takes longer hangs in the kernel.
const REAP_TIMEOUT: Duration = Duration::from_secs(2);

/// A program to run.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    pub args: Vec<std::ffi::OsString>,
    pub directory: PathBuf,
    /// All variables; nothing is inherited.
    pub environment: Vec<(String, std::ffi::OsString)>,
    /// File for standard output and error, limited in size; see [`crate::process::output`].
    pub output: PathBuf,
    /// The mark of all its processes.
    pub mark: ProcessMark,
    pub deadline: Duration,
    /// Time between SIGTERM and SIGKILL at the deadline.
    pub grace: Duration,
}

/// Outcome of a program.
#[derive(Debug)]
pub enum ProgramEnd {
    Exited(i32),
    /// By a signal that the agent did not send.
    Killed(i32),
    /// It was still running, and was ended with all its processes.
    Deadline,
    /// The agent shuts down; it was ended with all its processes.
    Cancelled,
    NotStarted(io::Error),
}

/// Runs a program. When this returns no process of it is left.
pub async fn supervise(program: &Program, children: &Children, cancel: &CancellationToken) -> ProgramEnd {
    if cancel.is_cancelled() {
        return ProgramEnd::Cancelled;
    }
    let (mut output, handle) = match PipeOutput::open(&program.output) {
        Ok(opened) => opened,
        Err(error) => return ProgramEnd::NotStarted(error),
    };
    let ended = tokio::select! {
        ended = run_to_end(program, handle, children, cancel) => ended,
        never = output.drain() => match never {},
    };
    if let Err(error) = output.finish() {
        tracing::warn!(file = %program.output.display(), %error, "cannot store the output of a program");
    }
    ended
}

async fn run_to_end(program: &Program, output: OwnedFd, children: &Children, cancel: &CancellationToken) -> ProgramEnd {
    let mut command = Command::new(&program.path);
    let errors = match output.try_clone() {
        Ok(errors) => errors,
        Err(error) => return ProgramEnd::NotStarted(error),
    };
    command
        .args(&program.args)
        .current_dir(&program.directory)
        .env_clear()
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        // Ctrl-C in a terminal is for the agent, which ends the check itself.
        .process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return ProgramEnd::NotStarted(error),
    };
    // It holds the program's handles of its output, with which a pipe would never be closed.
    drop(command);
    let _own = child.id().map(|pid| children.own(pid));
    let (pid, process) = match open(&child) {
        Ok(held) => held,
        Err(error) => {
            reap(&mut child).await;
            return ProgramEnd::NotStarted(error);
        }
    };
    // Observe the exit without reaping: until it is reaped, the number of its process group is not reused.
    let ended = tokio::select! {
        ended = process.wait() => ended.and_then(|()| exit_status(pid)).unwrap_or_else(ProgramEnd::NotStarted),
        () = tokio::time::sleep(program.deadline) => ProgramEnd::Deadline,
        () = cancel.cancelled() => ProgramEnd::Cancelled,
    };
    let grace = match &ended {
        ProgramEnd::Cancelled => process::SHORT_GRACE.min(program.grace),
        ProgramEnd::Exited(_) | ProgramEnd::Killed(_) | ProgramEnd::Deadline | ProgramEnd::NotStarted(_) => {
            program.grace
        }
    };
    process::end_all(&program.mark, grace).await;
    // A process that has cleared its environment is still in the group.
    process::end_group(pid, grace).await;
    reap(&mut child).await;
    ended
}

/// Opens a child that was just started.
fn open(child: &Child) -> io::Result<(Pid, Process)> {
    let number = child.id().ok_or_else(|| io::Error::other("the pid is unknown"))?;
    let pid = Pid::from_raw(number.cast_signed()).ok_or_else(|| io::Error::other("the pid is 0"))?;
    let process = Process::open(number)?.ok_or_else(|| io::Error::other("the process was gone at once"))?;
    Ok((pid, process))
}

/// Exit status of a child without reaping it.
fn exit_status(pid: Pid) -> io::Result<ProgramEnd> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(pid), options)?.ok_or_else(|| io::Error::other("the exit status is unknown"))?;
    Ok(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ProgramEnd::Exited(code),
        (None, signal) => ProgramEnd::Killed(signal.unwrap_or_default()),
    })
}

/// Reaps a child that has ended. If it has not, it is killed again and left to the runtime: it hangs in the kernel, and the
/// agent must not wait.
async fn reap(child: &mut Child) {
    let _ = child.start_kill();
    if tokio::time::timeout(REAP_TIMEOUT, child.wait()).await.is_err() {
        tracing::error!(pid = child.id(), "a process does not end after SIGKILL");
    }
}
