//! Ends the process group of a program, to reach processes that have cleared their environment and their mark (`env -i`).

use std::time::Duration;

use futures::future::join_all;
use muster_marked::{Process, Termination};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::process::stat::{Stat, pids};

/// Ends every process of a group: SIGTERM, after `grace` SIGKILL.
///
/// The caller has started the group's leader and must not have reaped it yet: until then its pid, which is the group's
/// number, is not reused.
pub async fn end(leader: Pid, grace: Duration) {
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
