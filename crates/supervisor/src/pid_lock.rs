//! The lock of `puppet agent`: a file with the pid of the Puppet that runs.
//!
//! A supervisor can write the pid only after it has started its program. Two supervisors that find the file free at the same
//! time would both start theirs. So a supervisor locks (flock) the directory of the file from the look at it until the pid is
//! written. `puppet agent` does not know this second lock.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Pid;

use crate::processes::{OpenProcess, pause};
use crate::supervise::POLL;

/// Supervisors lock the directory for the start of a program only.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pid of the Puppet that holds the lock. The file of a Puppet that was killed stays, and its pid may be another process by
/// now.
pub fn holder(path: &Path) -> Option<u32> {
    open_holder(path).map(|process| process.pid.as_raw_nonzero().get().cast_unsigned())
}

fn open_holder(path: &Path) -> Option<OpenProcess> {
    let pid = Pid::from_raw(fs::read_to_string(path).ok()?.trim().parse().ok()?)?;
    let process = OpenProcess::open(pid).ok()?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    // The interpreter and the script; other arguments may be anything.
    let mut first = line.split(|byte| *byte == 0).take(2);
    let is_puppet = first.any(|argument| String::from_utf8_lossy(argument).contains("puppet"));
    // No other process has the pid while this one runs.
    (is_puppet && !process.has_ended()).then_some(process)
}

/// The right to start a program and to write its pid. No other supervisor has it meanwhile.
pub(crate) struct Reservation<'a> {
    path: &'a Path,
    directory: File,
}

impl<'a> Reservation<'a> {
    /// Waits until no Puppet holds the lock. Fails with [`io::ErrorKind::TimedOut`] at the deadline.
    pub(crate) fn wait(path: &'a Path, deadline: Instant) -> io::Result<Self> {
        loop {
            let directory = lock_directory(path, deadline)?;
            let Some(holder) = open_holder(path) else { return Ok(Self { path, directory }) };
            drop(directory);
            let left = deadline.saturating_duration_since(Instant::now());
            if !holder.wait(left) && Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Writes the pid of the program that was started. The file of a process that is no Puppet is replaced.
    pub(crate) fn write(self, pid: u32) -> io::Result<PidFile<'a>> {
        let Self { path, directory } = self;
        // `puppet agent` may have taken it meanwhile.
        if open_holder(path).is_none() {
            let _ = fs::remove_file(path);
        }
        let text = pid.to_string();
        File::options().write(true).create_new(true).open(path)?.write_all(text.as_bytes())?;
        drop(directory);
        Ok(PidFile { path, text })
    }
}

/// The file with the pid of the program. It is removed with this, unless another process has replaced it.
pub(crate) struct PidFile<'a> {
    path: &'a Path,
    text: String,
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        // Another supervisor that replaces it has locked the directory.
        let _directory = lock_directory(self.path, Instant::now() + REMOVE_TIMEOUT);
        if fs::read_to_string(self.path).is_ok_and(|found| found == self.text) {
            let _ = fs::remove_file(self.path);
        }
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

/// Not waited for in the kernel: a process that keeps the directory locked must not delay the deadline.
fn lock_directory(path: &Path, deadline: Instant) -> io::Result<File> {
    let file = File::open(directory(path))?;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => pause(POLL),
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
}
