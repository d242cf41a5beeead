//! Runs one program to its end, its deadline or the agent's end.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use muster_marked::Process;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::process::children::Children;
use crate::process::group;
use crate::process::mark::{self, Mark};
use crate::process::output::{Ends, Output};

/// A killed process is gone in a moment, or hangs in the kernel.
const REAPED_WITHIN: Duration = Duration::from_secs(2);

/// A program to run.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    pub args: Vec<std::ffi::OsString>,
    pub directory: PathBuf,
    /// All variables; nothing else is handed on.
    pub environment: Vec<(String, std::ffi::OsString)>,
    /// Takes standard output and standard error, within bounds; see [`crate::process::output`].
    pub output: PathBuf,
    /// What every process of it carries.
    pub mark: Mark,
    pub deadline: Duration,
    /// How long its processes may take to end by themselves at the deadline.
    pub grace: Duration,
    pub leftovers: Leftovers,
}

/// What becomes of the processes that a program leaves behind when it ends in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// They are services, and meant to stay.
    Stay,
    End,
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

/// Runs a program. Except for what it may leave after an orderly end, nothing of it is left when this returns.
pub async fn supervise(program: &Program, children: &Children, cancel: &CancellationToken) -> Ended {
    if cancel.is_cancelled() {
        return Ended::Cancelled;
    }
    let (mut output, ends) = match Output::open(&program.output, program.leftovers) {
        Ok(opened) => opened,
        Err(error) => return Ended::NotStarted(error),
    };
    let ended = tokio::select! {
        ended = to_the_end(program, ends, children, cancel) => ended,
        never = output.keep_up() => match never {},
    };
    output.finish(&program.output);
    ended
}

async fn to_the_end(program: &Program, ends: Ends, children: &Children, cancel: &CancellationToken) -> Ended {
    let mut command = Command::new(&program.path);
    command
        .args(&program.args)
        .current_dir(&program.directory)
        .env_clear()
        .envs(program.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(ends.out)
        .stderr(ends.err)
        // A terminal's Ctrl-C is for the agent, which ends the run in order.
        .process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ended::NotStarted(error),
    };
    // It has the program's ends of its output, and with them a pipe would never come to its end.
    drop(command);
    let _own = child.id().map(|pid| children.own(pid));
    let (pid, process) = match hold(&child) {
        Ok(held) => held,
        Err(error) => {
            reap(&mut child).await;
            return Ended::NotStarted(error);
        }
    };
    // Its end is looked at and not taken: as long as nobody has waited for it, its group's number is nobody else's.
    let ended = tokio::select! {
        ended = process.ended() => ended.and_then(|()| how_it_ended(pid)).unwrap_or_else(Ended::NotStarted),
        () = tokio::time::sleep(program.deadline) => Ended::Deadline,
        () = cancel.cancelled() => Ended::Cancelled,
    };
    let grace = match &ended {
        Ended::Exited(_) if program.leftovers == Leftovers::Stay => None,
        Ended::Cancelled => Some(mark::SHORT_GRACE.min(program.grace)),
        Ended::Exited(_) | Ended::Killed(_) | Ended::Deadline | Ended::NotStarted(_) => Some(program.grace),
    };
    if let Some(grace) = grace {
        mark::end_all(&program.mark, grace).await;
        // What has cleared its environment is still in the group. Who has left both did so to get away.
        group::end(pid, grace).await;
    }
    reap(&mut child).await;
    ended
}

/// Takes hold of a child that was just started.
fn hold(child: &Child) -> io::Result<(Pid, Process)> {
    let number = child.id().ok_or_else(|| io::Error::other("its process number is not known"))?;
    let pid = Pid::from_raw(number.cast_signed()).ok_or_else(|| io::Error::other("its process number is 0"))?;
    let process = Process::open(number)?.ok_or_else(|| io::Error::other("it was gone at once"))?;
    Ok((pid, process))
}

/// How a child ended that nobody has waited for yet; it can be waited for afterwards.
fn how_it_ended(pid: Pid) -> io::Result<Ended> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(pid), options)?.ok_or_else(|| io::Error::other("its end cannot be seen"))?;
    Ok(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, signal) => Ended::Killed(signal.unwrap_or_default()),
    })
}

/// Waits for a child that has ended. One that has not, against everything that was done, is killed once more, and left
/// to the runtime to wait for: it hangs in the kernel, and the agent must not.
async fn reap(child: &mut Child) {
    let _ = child.start_kill();
    if tokio::time::timeout(REAPED_WITHIN, child.wait()).await.is_err() {
        tracing::error!(pid = child.id(), "this process does not end, not even when killed");
    }
}
