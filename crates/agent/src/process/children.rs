//! Which processes are ours to wait for.
//!
//! The agent is a child subreaper: what a run leaves behind becomes its child, and when such an orphan ends somebody must
//! reap it. The children that the agent started itself are waited for by the runtime, and reaping one of those would
//! steal its exit code. So the agent keeps a list of them, and reaps every other child that has ended.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, WaitOptions, set_child_subreaper, waitpid};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::process::stat::{Stat, pids};

/// The children that the agent has started and not yet waited for.
#[derive(Clone, Debug, Default)]
pub struct Children {
    own: Arc<Mutex<BTreeSet<i32>>>,
}

/// Keeps a child out of the reaper's reach for as long as this lives.
#[derive(Debug)]
pub struct Own {
    pid: i32,
    children: Children,
}

impl Children {
    /// Notes a child. It must be called before the thread that started the child lets other tasks go on.
    pub fn own(&self, pid: u32) -> Own {
        let pid = pid.cast_signed();
        self.with(|own| own.insert(pid));
        Own { pid, children: self.clone() }
    }

    /// Reaps every child that has ended and that nobody else waits for.
    pub fn reap_orphans(&self) {
        let parent = std::process::id().cast_signed();
        for pid in pids() {
            if is_ended_child(pid, parent) && !self.with(|own| own.contains(&pid)) {
                // An ended child keeps its number until it is reaped, so this is still the one that was looked at.
                let _ = waitpid(Pid::from_raw(pid), WaitOptions::NOHANG);
            }
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeSet<i32>) -> T) -> T {
        act(&mut self.own.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.children.with(|own| own.remove(&self.pid));
    }
}

/// Makes orphans of runs the agent's children.
pub fn become_subreaper() -> std::io::Result<()> {
    Ok(set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Reaps orphans for ever.
pub async fn run(children: Children, cancel: CancellationToken) -> std::io::Result<()> {
    let mut ended = signal(SignalKind::child())?;
    loop {
        // First, so that what ended before the signal was asked for is reaped too.
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
