//! `muster down`: stops a local fleet, also one whose `muster up` was killed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use muster_core::names::NodeName;
use muster_provision::local::{PowerOffResult, power_off_all, running_owner};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Serialize;

use crate::args::Globals;
use crate::commands::up::check_all_off;
use crate::connect::{FindServerError, SearchPaths};
use crate::failure::{Exit, Failure};
use crate::output::Terminal;

/// Stop a local fleet, also one whose `muster up` was killed
///
/// Stops the `muster up` of the state directory if it is running, as Ctrl-C does, and ends every process of its nodes. The state
/// is kept: the next `muster up` continues from there. A server that was started with `muster serve` is not affected.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  no process of the fleet is running
  1  processes do not end; they are listed
  2  there is no state directory here

Examples:
  muster down                       the fleet of .muster in this or a parent directory
  muster down --state /srv/lab")]
pub struct Args {
    /// Time that a running `muster up` has to stop
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = crate::args::timeout_arg)]
    timeout: jiff::SignedDuration,
}

#[derive(Debug, Serialize)]
struct StoppedFleet {
    state: PathBuf,
    /// Process id of the `muster up` that was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    up: Option<i32>,
    nodes: Vec<StoppedNode>,
}

#[derive(Debug, Serialize)]
struct StoppedNode {
    node: NodeName,
    /// Number of processes that were ended.
    ended: usize,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let state = state(globals)?;
    let owner = running_owner(&state).map_err(Failure::failed)?;
    if let Some(pid) = owner {
        terminal.notes.progress(format_args!("waiting for `muster up` (process {pid}) to stop …"));
        let timeout = Duration::try_from(args.timeout).unwrap_or_default();
        let stopped = stop(pid, timeout).with_context(|| format!("cannot stop `muster up`, which is process {pid}"));
        terminal.notes.end_progress();
        if !stopped.map_err(Failure::failed)? {
            let error = anyhow::anyhow!("`muster up` (process {pid}) did not stop within {:#}", args.timeout);
            return Err(
                Failure::failed(error).hint("wait longer with --timeout, or kill the process and repeat `muster down`")
            );
        }
    }
    let machines = power_off_all(&state).await.map_err(Failure::failed)?;
    let ended = |machine: &PowerOffResult| {
        machine.result.as_ref().map_or(0, |ended| ended.terminated.len() + ended.killed.len())
    };
    let mut nodes: Vec<StoppedNode> =
        machines.iter().map(|machine| StoppedNode { node: machine.node.clone(), ended: ended(machine) }).collect();
    nodes.sort_by(|a, b| a.node.natural().cmp(&b.node.natural()));
    check_all_off(machines).map_err(Failure::failed)?;
    let fleet = StoppedFleet { state, up: owner, nodes };
    terminal.out.answer(&fleet, |out| {
        if let Some(pid) = fleet.up {
            out.line(format_args!("stopped `muster up` (process {pid})"));
        }
        let running: Vec<&StoppedNode> = fleet.nodes.iter().filter(|node| node.ended > 0).collect();
        running.iter().for_each(|node| out.line(format_args!("ended {} processes of {}", node.ended, node.node)));
        if fleet.up.is_none() && running.is_empty() {
            out.line(format_args!("no process of the fleet in {} is running", fleet.state.display()));
        }
    });
    Ok(Exit::Yes)
}

/// The chosen state directory, or the nearest one in this or a parent directory.
fn state(globals: &Globals) -> Result<PathBuf, Failure> {
    let nearest = || {
        let paths = SearchPaths::from_process().map_err(FindServerError::CurrentDir)?;
        Ok::<_, Failure>(paths.nearest_state())
    };
    let state = match &globals.state {
        Some(state) => Some(state.clone()).filter(|state| state.is_dir()),
        None => nearest()?,
    };
    state.ok_or_else(|| {
        let error = anyhow::anyhow!("no fleet was started in this directory or a parent directory");
        Failure::cannot_tell(error)
            .hint("change to the directory of `muster up`, or name its state directory with --state")
    })
}

/// Sends SIGTERM to a process and waits until it has ended. False if it has not after the timeout.
fn stop(pid: i32, timeout: Duration) -> Result<bool, rustix::io::Errno> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(true) };
    // A descriptor of the process: a reused id is never signalled.
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(true),
        opened => opened?,
    };
    match pidfd_send_signal(&process, Signal::TERM) {
        Err(rustix::io::Errno::SRCH) => return Ok(true),
        sent => sent?,
    }
    let limit = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 120, tv_nsec: 0 });
    let mut watched = [PollFd::new(&process, PollFlags::IN)];
    loop {
        match poll(&mut watched, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}
