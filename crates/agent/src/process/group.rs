//! The process group of a program, which is what is left to find its processes by when they have cleared their
//! environment and with it their mark (`env -i`).

use std::time::Duration;

use futures::future::join_all;
use muster_marked::{Ending, Process};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::process::stat::{Stat, pids};

/// Ends every process of a group: SIGTERM, after `grace` SIGKILL.
///
/// The caller has started the group's first process and must not have waited for it yet: until then its number, which
/// is the group's, is given to nobody else.
pub async fn end(leader: Pid, grace: Duration) {
    let members = match tokio::task::spawn_blocking(move || members(leader)).await {
        Ok(members) => members,
        Err(error) => {
            tracing::error!(%leader, %error, "cannot look for the processes of a group");
            return;
        }
    };
    let left = join_all(members.iter().map(|member| end_one(member, grace))).await;
    let left: Vec<u32> = left.into_iter().flatten().collect();
    // Whoever was forked while the others were being ended. There is mostly none, and that is no error.
    let _ = kill_process_group(leader, Signal::KILL);
    if !left.is_empty() {
        tracing::error!(%leader, pids = ?left, "these processes do not end, not even when killed");
    }
}

/// Gives the number of a process that could not be ended.
async fn end_one(process: &Process, grace: Duration) -> Option<u32> {
    match process.end(grace).await {
        Ok(Ending::Asked | Ending::Killed) => None,
        Ok(Ending::Left) | Err(_) => Some(process.pid()),
    }
}

/// The living members of a group.
fn members(leader: Pid) -> Vec<Process> {
    let group = leader.as_raw_nonzero().get();
    let is_member = |pid: i32| Stat::read(pid).is_some_and(|stat| stat.group == group && !stat.has_ended());
    let held = pids().filter(|pid| is_member(*pid)).filter_map(|pid| Process::open(pid.cast_unsigned()).ok().flatten());
    // Looked at again now that it is held: between the two its number may have gone to another process.
    held.filter(|process| is_member(process.pid().cast_signed())).collect()
}
