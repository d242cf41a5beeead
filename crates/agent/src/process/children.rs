//! Reaps orphaned processes of runs.
//!
//! The agent is a child subreaper: orphans of a run become its children, and it must reap them. The runtime reaps the
//! children that the agent has started itself, and needs their exit codes. The agent keeps a list of those and reaps all
//! other children.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, WaitOptions, set_child_subreaper, waitpid};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::process::stat::{Stat, pids};

/// The children that the agent has started and the runtime has not reaped yet.
#[derive(Clone, Debug, Default)]
pub struct Children {
    own: Arc<Mutex<BTreeSet<i32>>>,
}

/// Excludes a child from reaping until this is dropped.
#[derive(Debug)]
pub struct OwnChild {
    pid: i32,
    children: Children,
}

impl Children {
    /// Registers a child. Call it before the next await after the spawn.
    pub fn own(&self, pid: u32) -> OwnChild {
        let pid = pid.cast_signed();
        self.with(|own| own.insert(pid));
        OwnChild { pid, children: self.clone() }
    }

    /// Reaps every ended child that is not registered.
    pub fn reap_orphans(&self) {
        let parent = std::process::id().cast_signed();
        for pid in pids() {
            if is_ended_child(pid, parent) && !self.with(|own| own.contains(&pid)) {
                // An ended child keeps its pid until it is reaped, so this is the same process.
                let _ = waitpid(Pid::from_raw(pid), WaitOptions::NOHANG);
            }
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeSet<i32>) -> T) -> T {
        act(&mut self.own.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        self.children.with(|own| own.remove(&self.pid));
    }
}

/// Makes orphans of runs children of the agent.
pub fn become_subreaper() -> std::io::Result<()> {
    Ok(set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Reaps orphans for ever.
pub async fn run(children: Children, cancel: CancellationToken) -> std::io::Result<()> {
    let mut ended = signal(SignalKind::child())?;
    loop {
        // First, for children that ended before the signal handler was installed.
        children.reap_orphans();
        tokio::select! {
            () = cancel.cancelled() => return Ok(()),
            _ = ended.recv() => {}
        }
    }
}

fn is_ended_child(pid: i32, parent: i32) -> bool {
    Stat::read(pid).is_some_and(|stat| stat.has_ended() && stat.parent == parent)
}
