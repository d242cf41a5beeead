//! One process, held by a pidfd.

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

/// A process that was alive when it was looked at. It stays this process, even when its pid is used again.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    fd: OwnedFd,
}

impl Process {
    /// Takes hold of the process that has this pid now. `None`: there is none.
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

    /// Waits until the process has ended, whoever its parent is.
    pub async fn ended(&self) -> io::Result<()> {
        // A copy, since a descriptor can be watched by one watcher only and several may wait.
        #[expect(
            deprecated,
            reason = "its successor is unsafe; what it warns of, a type whose descriptor changes, OwnedFd is not"
        )]
        let watched = AsyncFd::with_interest(self.fd.try_clone()?, Interest::READABLE)?;
        let _ready = watched.readable().await?;
        Ok(())
    }

    /// The command line that it was started with. Empty: it has ended.
    pub fn arguments(&self) -> io::Result<Vec<OsString>> {
        let line = match fs::read(format!("/proc/{}/cmdline", self.pid)) {
            Ok(line) => line,
            Err(error) if is_gone(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        // While a process lives, nobody else has its pid: so the line was its own if it still lives after the reading.
        if self.has_ended()? {
            return Ok(Vec::new());
        }
        let line = line.strip_suffix(b"\0").unwrap_or(&line);
        if line.is_empty() {
            return Ok(Vec::new());
        }
        Ok(line.split(|byte| *byte == 0).map(|argument| OsString::from_vec(argument.to_vec())).collect())
    }

    /// Whether it leads a process group, as one does that was started in a group of its own, and no child of it unless
    /// it makes a group too.
    pub fn leads_group(&self) -> io::Result<bool> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        match getpgid(pid) {
            Ok(group) => Ok(Some(group) == pid && !self.has_ended()?),
            Err(Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it has ended, reaped or not.
    pub fn has_ended(&self) -> io::Result<bool> {
        let mut watched = [PollFd::new(&self.fd, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        Ok(retry_on_intr(|| poll(&mut watched, Some(&at_once)))? > 0)
    }
}

/// What reading a file below `/proc/<pid>` says when the process is gone.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}
