//! The processes of a program: those that carry its mark, and those in its process group.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process_group, pidfd_open, pidfd_send_signal,
    waitid, waitpid,
};

/// A process that was running when it was opened. A signal never hits another process with a reused pid.
pub(crate) struct OpenProcess {
    pub(crate) pid: Pid,
    fd: OwnedFd,
}

impl OpenProcess {
    pub(crate) fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self { pid, fd: pidfd_open(pid, PidfdFlags::empty())? })
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // It may have ended meanwhile.
        let _ = pidfd_send_signal(&self.fd, signal);
    }

    /// True if it has ended, reaped or not.
    pub(crate) fn has_ended(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Waits for its end. `false`: timeout.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let mut watched = [PollFd::new(&self.fd, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let until = Instant::now() + Duration::try_from(timeout).unwrap_or_default();
        loop {
            match poll(&mut watched, Some(&timeout)) {
                Ok(ready) => return ready > 0,
                Err(Errno::INTR) if Instant::now() < until => {}
                Err(_) => return false,
            }
        }
    }
}

/// Waits without a process to wait for.
pub(crate) fn pause(time: Duration) {
    if let Ok(time) = Timespec::try_from(time) {
        let _ = retry_on_intr(|| poll(&mut [], Some(&time)));
    }
}

/// The processes of one program.
pub(crate) struct ProcessTree {
    /// Entry of the environment: `NAME=value`.
    mark: Vec<u8>,
    /// Leader of the process group. It must not be reaped while this is used: until then its pid is not reused.
    leader: Pid,
}

impl ProcessTree {
    pub(crate) fn new((name, value): &(String, String), leader: Pid) -> Self {
        Self { mark: format!("{name}={value}").into_bytes(), leader }
    }

    /// True if a process belongs to the program and has not ended.
    pub(crate) fn contains(&self, pid: i32) -> bool {
        let Some((has_ended, group)) = state_and_group(pid) else { return false };
        !has_ended && (group == self.leader.as_raw_nonzero().get() || self.is_marked(pid))
    }

    fn is_marked(&self, pid: i32) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == self.mark)
    }

    /// All living processes of the program, without this one.
    fn find(&self) -> Vec<OpenProcess> {
        let own = std::process::id().cast_signed();
        let names = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let found = pids.filter(|pid| *pid != own && self.contains(*pid));
        let open = found.filter_map(|pid| OpenProcess::open(Pid::from_raw(pid)?).ok());
        // Again, while the process is held: the pid may have been reused in between.
        open.filter(|process| self.contains(process.pid.as_raw_nonzero().get())).collect()
    }

    /// Signals all processes until none is left. `false`: some are left after the timeout.
    pub(crate) fn signal_all(&self, signal: Signal, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        // Twice without a result: one search can miss a process that forks at that moment.
        let mut clean = 0;
        while clean < 2 {
            let found = self.find();
            for process in &found {
                process.signal(signal);
            }
            for process in &found {
                let left = until.saturating_duration_since(Instant::now());
                if !process.wait(left) {
                    return false;
                }
            }
            self.reap_orphans();
            clean = if found.is_empty() { clean + 1 } else { 0 };
        }
        true
    }

    /// Kills the process group, with processes that were forked meanwhile.
    pub(crate) fn kill_group(&self) {
        let _ = kill_process_group(self.leader, Signal::KILL);
    }

    /// Reaps ended processes that were left to the supervisor, but not the leader.
    pub(crate) fn reap_orphans(&self) {
        let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let names = fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()));
        for pid in names.unwrap_or_default().split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            if pid != self.leader && matches!(waitid(WaitId::Pid(pid), peek), Ok(Some(_))) {
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
    }
}

/// State and process group from `/proc/<pid>/stat`. The name of the process may contain any character, so fields are
/// counted from the last parenthesis.
fn state_and_group(pid: i32) -> Option<(bool, i32)> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = line.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    Some((matches!(state, "Z" | "X" | "x"), fields.nth(1)?.parse().ok()?))
}
