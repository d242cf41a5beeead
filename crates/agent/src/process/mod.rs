//! Processes of runs: started with a mark, supervised with a deadline, found and ended by the mark, reaped.
//!
//! Puppet moves the children of its `exec` into their own sessions, so ending a process group is not enough. Every process of
//! a run carries `MUSTER_RUN_ID` in its initial environment, which children inherit. A process that removes the mark on
//! purpose, as a service manager does, no longer belongs to the run, unless it is still in the applier's process group.

pub mod children;
pub mod output;
pub mod supervise;
pub mod supervised;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::future::join_all;
use muster_marked::{Process, Termination};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::process::children::{Stat, pids};

/// Time between SIGTERM and SIGKILL.
pub const GRACE: Duration = Duration::from_secs(5);
/// The same when the agent shuts down, or for processes of an earlier agent: their result is not needed.
pub const SHORT_GRACE: Duration = Duration::from_secs(2);

/// An environment variable that identifies the processes of a run or a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessMark {
    pub variable: &'static str,
    pub value: String,
}

impl ProcessMark {
    pub fn new(variable: &'static str, value: impl Into<String>) -> Self {
        Self { variable, value: value.into() }
    }
}

/// Ends every process that carries the mark. One that hangs in the kernel is logged; the agent does not wait for it.
pub async fn end_all(mark: &ProcessMark, grace: Duration) {
    match muster_marked::terminate_all(mark.variable, &mark.value, grace).await {
        Ok(ended) if ended.is_complete() => {}
        Ok(ended) => {
            tracing::error!(mark = mark.value, pids = ?ended.remaining, "processes do not end after SIGKILL");
        }
        Err(error) => tracing::error!(mark = mark.value, %error, "cannot search for the processes of a run"),
    }
}

/// Ends every process of a program's group: SIGTERM, after `grace` SIGKILL. It reaches processes that have cleared their
/// environment, and with it their mark (`env -i`).
///
/// The caller has started the group's leader and must not have reaped it yet: until then its pid, which is the group's
/// number, is not reused.
pub async fn end_group(leader: Pid, grace: Duration) {
    let members = match tokio::task::spawn_blocking(move || members(leader)).await {
        Ok(members) => members,
        Err(error) => {
            tracing::error!(%leader, %error, "cannot search for the processes of a group");
            return;
        }
    };
    let left = join_all(members.iter().map(|member| end_one(member, grace))).await;
    let left: Vec<u32> = left.into_iter().flatten().collect();
    // Processes that were forked meanwhile. Mostly there are none, which is no error.
    let _ = kill_process_group(leader, Signal::KILL);
    if !left.is_empty() {
        tracing::error!(%leader, pids = ?left, "processes do not end after SIGKILL");
    }
}

/// Ends one process. Returns its pid if it does not end.
async fn end_one(process: &Process, grace: Duration) -> Option<u32> {
    match process.terminate(grace).await {
        Ok(Termination::Graceful | Termination::Killed) => None,
        Ok(Termination::Remaining) | Err(_) => Some(process.pid()),
    }
}

/// The running members of a group.
fn members(leader: Pid) -> Vec<Process> {
    let group = leader.as_raw_nonzero().get();
    let is_member = |pid: i32| Stat::read(pid).is_some_and(|stat| stat.group == group && !stat.has_ended());
    let held = pids().filter(|pid| is_member(*pid)).filter_map(|pid| Process::open(pid.cast_unsigned()).ok().flatten());
    // Check again while the pidfd is held: the pid may have been reused in between.
    held.filter(|process| is_member(process.pid().cast_signed())).collect()
}
