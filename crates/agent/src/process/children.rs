//! Reads the process table in `/proc`, and reaps orphaned processes of runs.
//!
//! The agent is a child subreaper: orphans of a run become its children, and it must reap them. The runtime reaps the
//! children that the agent has started itself, and needs their exit codes. The agent keeps a list of those and reaps all
//! other children.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, WaitOptions, set_child_subreaper, waitpid};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

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

/// State of a process, from `/proc/<pid>/stat`; see proc_pid_stat(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    state: char,
    pub parent: i32,
    pub group: i32,
    /// Start time in clock ticks since boot.
    pub started: u64,
}

impl Stat {
    /// `None`: there is no such process.
    pub fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// `pid (name) state ppid pgrp …`; the name may contain any character, so fields are counted from the last parenthesis.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<_> = line.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// True for a zombie, which is still listed.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// All pids in `/proc`.
pub fn pids() -> impl Iterator<Item = i32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_may_contain_parentheses() {
        let line =
            "77 (a) Z 1 (b) S 5 76 75 34816 76 4194304 100 0 0 0 0 0 0 0 20 0 1 0 123456 1000 10 18446744073709551615";
        let expected = Stat { state: 'S', parent: 5, group: 76, started: 123_456 };
        assert_eq!(Stat::parse(line), Some(expected));
        assert!(!expected.has_ended());
        assert_eq!(Stat::parse("77 (a) Z 1"), None);
    }

    #[test]
    fn own_process_is_listed_and_running() {
        let own = std::process::id().cast_signed();
        assert!(pids().any(|pid| pid == own));
        assert!(!Stat::read(own).unwrap().has_ended());
        assert_eq!(Stat::read(0), None);
    }
}
