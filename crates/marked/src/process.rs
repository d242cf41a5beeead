//! Finds, signals and terminates processes: one, or all that carry a mark.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;
use std::{fs, io};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, Signal, getpgid, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, timeout, timeout_at};

/// Time that killed processes have to end. A process that takes longer hangs in the kernel (a dead disk or network mount),
/// and no signal helps. The caller gets its pid instead of waiting for ever.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of empty searches in a row after which no process is left. One search can miss a process that forks or calls exec
/// at that moment; two in a row do not.
const CLEAN_SEARCHES: u32 = 2;

/// A process that was running when it was opened. The handle stays valid when the pid is reused.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    fd: OwnedFd,
}

impl Process {
    /// Opens the process that has this pid now. `None`: there is none.
    pub fn open(pid: u32) -> io::Result<Option<Self>> {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(Self { pid, fd })),
            // EINVAL: a thread that is not a process.
            Err(Errno::SRCH | Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a signal. `false`: the process had ended before.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        match pidfd_send_signal(&self.fd, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the process has ended. It need not be a child.
    pub async fn wait(&self) -> io::Result<()> {
        // A copy: a descriptor can have one watcher only, and several tasks may wait.
        #[expect(
            deprecated,
            reason = "the successor is unsafe; it guards against types whose descriptor changes, which OwnedFd is not"
        )]
        let watched = AsyncFd::with_interest(self.fd.try_clone()?, Interest::READABLE)?;
        let _ready = watched.readable().await?;
        Ok(())
    }

    /// Its command line. Empty: it has ended.
    pub fn arguments(&self) -> io::Result<Vec<OsString>> {
        let line = match fs::read(format!("/proc/{}/cmdline", self.pid)) {
            Ok(line) => line,
            Err(error) if is_gone(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        // No other process has the pid while this one runs. If it still runs, the line was its own.
        if self.has_ended()? {
            return Ok(Vec::new());
        }
        let line = line.strip_suffix(b"\0").unwrap_or(&line);
        if line.is_empty() {
            return Ok(Vec::new());
        }
        Ok(line.split(|byte| *byte == 0).map(|argument| OsString::from_vec(argument.to_vec())).collect())
    }

    /// True if it leads a process group: it was started in its own group, or has created one.
    pub fn leads_group(&self) -> io::Result<bool> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        match getpgid(pid) {
            Ok(group) => Ok(Some(group) == pid && !self.has_ended()?),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// True if it has ended, reaped or not.
    pub fn has_ended(&self) -> io::Result<bool> {
        let mut watched = [PollFd::new(&self.fd, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        Ok(retry_on_intr(|| poll(&mut watched, Some(&at_once)))? > 0)
    }
}

/// True for the errors of reading below `/proc/<pid>` after the process is gone.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// The processes that carry the mark `name=value` in their environment, without the calling process.
///
/// The crate documentation lists the processes that are not found. Fails only if `/proc` itself cannot be read.
pub fn find(name: &str, value: impl AsRef<OsStr>) -> io::Result<Vec<Process>> {
    let mark = [name.as_bytes(), b"=", value.as_ref().as_bytes()].concat();
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == own || !carries(pid, &mark)? {
            continue;
        }
        // The pid may have been reused between the read and the open: read again while the pidfd is held.
        if let Some(process) = Process::open(pid)?
            && carries(pid, &mark)?
            && !process.has_ended()?
        {
            found.push(process);
        }
    }
    Ok(found)
}

/// True if the environment of `pid` contains exactly this entry.
fn carries(pid: u32, mark: &[u8]) -> io::Result<bool> {
    match fs::read(format!("/proc/{pid}/environ")) {
        Ok(environment) => Ok(environment.split(|byte| *byte == 0).any(|entry| entry == mark)),
        Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error),
    }
}

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
    let mut search = MarkedTermination {
        name: name.to_owned(),
        value: value.as_ref().to_owned(),
        ended: TerminationSummary::default(),
    };
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

/// Result of the termination of one process.
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

struct MarkedTermination {
    name: String,
    value: OsString,
    ended: TerminationSummary,
}

impl MarkedTermination {
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
