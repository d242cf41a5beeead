//! Terminates processes: one, or all that carry a mark.

use std::ffi::{OsStr, OsString};
use std::io;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, timeout, timeout_at};

use crate::process::Process;
use crate::search::find;

/// Time that killed processes have to end. A process that takes longer hangs in the kernel (a dead disk or network mount),
/// and no signal helps. The caller gets its pid instead of waiting for ever.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of empty searches in a row after which no process is left. One search can miss a process that forks or calls exec
/// at that moment; two in a row do not.
const CLEAN_SEARCHES: u32 = 2;

/// Pids of the processes that carried a mark, by how they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminationSummary {
    /// Ended after SIGTERM.
    pub terminated: Vec<u32>,
    /// Ended after SIGKILL.
    pub killed: Vec<u32>,
    /// Not ended: they belong to another user, or hang in the kernel.
    pub remaining: Vec<u32>,
}

impl TerminationSummary {
    /// True if no process with the mark is left.
    pub fn is_complete(&self) -> bool {
        self.remaining.is_empty()
    }
}

/// Terminates all processes that carry the mark `name=value`, except the caller: SIGTERM, after `grace` SIGKILL.
///
/// Returns as soon as none is left, at the latest 10 seconds after the grace period. Processes that appear meanwhile are
/// terminated as well.
pub async fn terminate_all(name: &str, value: impl AsRef<OsStr>, grace: Duration) -> io::Result<TerminationSummary> {
    let mut search =
        Search { name: name.to_owned(), value: value.as_ref().to_owned(), ended: TerminationSummary::default() };
    let term_until = Instant::now() + grace;
    if search.signal_until_none_left(Signal::TERM, term_until).await? {
        return Ok(search.ended);
    }
    let kill_until = Instant::now() + KILL_TIMEOUT;
    if !search.signal_until_none_left(Signal::KILL, kill_until).await? {
        let left: Vec<u32> = search.search().await?.iter().map(Process::pid).collect();
        search.ended.terminated.retain(|pid| !left.contains(pid));
        search.ended.remaining.extend(left);
    }
    Ok(search.ended)
}

/// How one process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Termination {
    /// It ended after SIGTERM, or had ended before.
    Graceful,
    /// It ended after SIGKILL.
    Killed,
    /// It did not end: it hangs in the kernel.
    Remaining,
}

impl Process {
    /// Terminates this process: SIGTERM, after `grace` SIGKILL. Returns as soon as it has ended, at the latest 10 seconds
    /// after the grace period.
    pub async fn terminate(&self, grace: Duration) -> io::Result<Termination> {
        self.signal(Signal::TERM)?;
        if let Ok(ended) = timeout(grace, self.wait()).await {
            return ended.map(|()| Termination::Graceful);
        }
        self.signal(Signal::KILL)?;
        match timeout(KILL_TIMEOUT, self.wait()).await {
            Ok(ended) => ended.map(|()| Termination::Killed),
            Err(_) => Ok(Termination::Remaining),
        }
    }
}

struct Search {
    name: String,
    value: OsString,
    ended: TerminationSummary,
}

impl Search {
    /// Signals all processes found, waits for their end, and searches again. `false`: timeout.
    async fn signal_until_none_left(&mut self, signal: Signal, until: Instant) -> io::Result<bool> {
        let mut clean = 0;
        while clean < CLEAN_SEARCHES {
            let found = self.search().await?;
            if found.is_empty() {
                clean += 1;
                continue;
            }
            clean = 0;
            let signalled = self.signal(found, signal)?;
            if !self.wait(&signalled, signal, until).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn search(&self) -> io::Result<Vec<Process>> {
        let (name, value) = (self.name.clone(), self.value.clone());
        // With thousands of processes a search takes milliseconds: too long for an async thread.
        let mut found = tokio::task::spawn_blocking(move || find(&name, value)).await.map_err(io::Error::other)??;
        found.retain(|process| !self.ended.remaining.contains(&process.pid()));
        Ok(found)
    }

    /// Signals all of them. Those that may not be signalled are recorded and skipped from now on.
    fn signal(&mut self, found: Vec<Process>, signal: Signal) -> io::Result<Vec<Process>> {
        let mut signalled = Vec::with_capacity(found.len());
        for process in found {
            match process.signal(signal) {
                Ok(_) => signalled.push(process),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.ended.remaining.push(process.pid())
                }
                Err(error) => return Err(error),
            }
        }
        Ok(signalled)
    }

    /// Waits until all of them have ended. `false`: timeout.
    async fn wait(&mut self, signalled: &[Process], signal: Signal, until: Instant) -> io::Result<bool> {
        let mut all = true;
        for process in signalled {
            let has_ended = match timeout_at(until, process.wait()).await {
                Ok(ended) => ended.map(|()| true)?,
                // Another process may have used up the time.
                Err(_) => process.has_ended()?,
            };
            all &= has_ended;
            // A process counts as terminated until it has to be killed.
            if signal == Signal::TERM {
                self.ended.terminated.push(process.pid());
            } else if has_ended {
                self.ended.terminated.retain(|pid| *pid != process.pid());
                self.ended.killed.push(process.pid());
            }
        }
        Ok(all)
    }
}
