//! Handle of one process that stays valid when its pid is reused (a pidfd).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, Signal, getpgid, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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
