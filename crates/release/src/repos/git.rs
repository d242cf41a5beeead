//! Runs `git`, and `curl` for the Forge, without a shell and without prompts; each command has a deadline and can be
//! cancelled.
//!
//! The output goes to files, not through pipes. A process that git leaves running, such as an ssh connection that is kept
//! for the next command, would hold a pipe open for ever.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use thiserror::Error;

/// Bytes of standard error that are kept, from its end, where git says why it failed.
const STDERR_LIMIT: u64 = 4 * 1024;
/// Lines that git prints after every transport failure; our own hints are more specific.
const ADVICE: [&str; 2] = ["Please make sure you have the correct access rights", "and the repository exists."];
/// Time between SIGTERM and SIGKILL, in which git removes its temporary files.
const KILL_AFTER: Duration = Duration::from_secs(2);
/// Variables of a surrounding repository or git hook that would redirect git; they are removed.
const INHERITED_VARIABLES: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
];

#[derive(Debug, Error)]
pub enum GitError {
    #[error("{program} is not installed")]
    NotInstalled { program: &'static str },
    #[error("cannot run git or curl")]
    Run(#[source] io::Error),
    #[error("{command} failed: {}", if stderr.is_empty() { "no error message" } else { stderr })]
    Failed { command: String, code: Option<i32>, stderr: String },
    #[error("no answer within {after:?}{}", if stderr.is_empty() { String::new() } else { format!("; it printed: {stderr}") })]
    Deadline { after: Duration, stderr: String },
    #[error("cancelled")]
    Cancelled,
}

/// Directories, deadline and cancellation of git commands.
#[derive(Clone, Copy, Debug)]
pub struct Git<'a> {
    /// The directory of the release; relative sources start here.
    pub directory: &'a Path,
    /// Directory for the files that take the output.
    pub temporary: &'a Path,
    pub deadline: Duration,
    pub cancel: &'a CancelHandle,
}

impl Git<'_> {
    /// Runs one command in a repository; returns its standard output as a file, positioned at the start.
    pub fn run(&self, repository: &Path, verb: &'static str, args: &[&str]) -> Result<File, GitError> {
        self.run_with_input(repository, verb, args, Stdio::null())
    }

    /// Runs one command with standard input.
    pub fn run_with_input(
        &self,
        repository: &Path,
        verb: &'static str,
        args: &[&str],
        input: Stdio,
    ) -> Result<File, GitError> {
        let mut command = Command::new("git");
        command.arg("--git-dir").arg(repository).arg(verb).args(args).stdin(input);
        INHERITED_VARIABLES.iter().for_each(|name| {
            command.env_remove(name);
        });
        // There is no terminal to prompt on.
        command.env("GIT_TERMINAL_PROMPT", "0");
        self.run_command(command, "git", verb)
    }

    /// Lists refs of a repository that is not in the cache.
    pub fn list_remote(&self, place: &str, patterns: &[&str]) -> Result<File, GitError> {
        let args = ["--end-of-options", place].into_iter().chain(patterns.iter().copied()).collect::<Vec<_>>();
        self.run(self.temporary, "ls-remote", &args)
    }

    /// Downloads a document into a file, positioned at the start, with the proxies and certificates of this machine.
    pub fn download(&self, url: &str, limit: u64) -> Result<File, GitError> {
        let mut command = Command::new("curl");
        let limit = limit.to_string();
        command.args([
            "--disable",
            "--fail",
            "--silent",
            "--show-error",
            "--netrc-optional",
            "--location",
            "--proto",
            "=http,https",
        ]);
        command.args(["--max-filesize", &limit, "--user-agent", "muster", "--url", url]).stdin(Stdio::null());
        self.run_command(command, "curl", url)
    }

    fn run_command(&self, mut command: Command, program: &'static str, what: &str) -> Result<File, GitError> {
        let mut stdout = tempfile_in(self.temporary).map_err(GitError::Run)?;
        let mut stderr = tempfile_in(self.temporary).map_err(GitError::Run)?;
        command.current_dir(self.directory);
        command.stdout(stdout.try_clone().map_err(GitError::Run)?).stderr(stderr.try_clone().map_err(GitError::Run)?);
        // The error texts are matched in English.
        command.env("LC_ALL", "C").process_group(0);
        let child = command.spawn().map_err(|error| match error.kind() == io::ErrorKind::NotFound {
            true => GitError::NotInstalled { program },
            false => GitError::Run(error),
        })?;
        let ended = self.wait(child).map_err(GitError::Run)?;
        let stderr = tail(&mut stderr);
        match ended {
            GitExit::Exited(status) if status.success() => {
                stdout.seek(SeekFrom::Start(0)).map_err(GitError::Run)?;
                Ok(stdout)
            }
            GitExit::Exited(status) => {
                Err(GitError::Failed { command: format!("{program} {what}"), code: status.code(), stderr })
            }
            GitExit::Deadline => Err(GitError::Deadline { after: self.deadline, stderr }),
            GitExit::Cancelled => Err(GitError::Cancelled),
        }
    }

    fn wait(&self, mut child: Child) -> io::Result<GitExit> {
        let group = Pid::from_child(&child);
        let process = match pidfd_open(group, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(error) => {
                signal(group, Signal::KILL);
                child.wait()?;
                return Err(error.into());
            }
        };
        let mut ended = None;
        let mut signal_at = Instant::now() + self.deadline;
        let mut fds = [PollFd::new(&process, PollFlags::IN), PollFd::new(self.cancel, PollFlags::IN)];
        loop {
            let left = signal_at.saturating_duration_since(Instant::now());
            // After SIGTERM only the end of the process is polled.
            let watched = if ended.is_none() { 2 } else { 1 };
            let time =
                Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
            match poll(&mut fds[..watched], Some(&time)) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    signal(group, Signal::KILL);
                    child.wait()?;
                    return Err(error.into());
                }
                Ok(_) => {}
            }
            if fds[0].revents().contains(PollFlags::IN) {
                break;
            }
            let cancelled = watched == 2 && fds[1].revents().contains(PollFlags::IN);
            match (cancelled, Instant::now() >= signal_at, &ended) {
                (true, _, None) => {
                    ended = Some(GitExit::Cancelled);
                    signal(group, Signal::TERM);
                    signal_at = Instant::now() + KILL_AFTER;
                }
                (_, true, None) => {
                    ended = Some(GitExit::Deadline);
                    signal(group, Signal::TERM);
                    signal_at = Instant::now() + KILL_AFTER;
                }
                (_, true, Some(_)) => {
                    signal(group, Signal::KILL);
                    break;
                }
                (_, false, _) => {}
            }
        }
        let status = child.wait()?;
        match ended {
            None => Ok(GitExit::Exited(status)),
            Some(ended) => {
                // Processes that git started and that ignored SIGTERM.
                signal(group, Signal::KILL);
                Ok(ended)
            }
        }
    }
}

enum GitExit {
    Exited(ExitStatus),
    Deadline,
    Cancelled,
}

/// Signals git and all processes that it started. A group that has ended already is no error.
fn signal(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

/// An unlinked file: it disappears with this process.
fn tempfile_in(directory: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let path: PathBuf = crate::temp_path::TempPath::in_dir(directory, "output").path().to_owned();
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// The last lines of standard error, joined into one.
fn tail(stderr: &mut File) -> String {
    let mut text = Vec::new();
    let length = stderr.seek(SeekFrom::End(0)).unwrap_or_default();
    let read = stderr
        .seek(SeekFrom::Start(length.saturating_sub(STDERR_LIMIT)))
        .and_then(|_| stderr.take(STDERR_LIMIT).read_to_end(&mut text));
    if read.is_err() {
        return "its error output cannot be read".to_owned();
    }
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !ADVICE.contains(line));
    lines.collect::<Vec<_>>().join("; ")
}

/// Cancels git commands of other threads. It is a file descriptor: a thread that waits for a process polls both.
#[derive(Clone, Debug)]
pub struct CancelHandle(Arc<OwnedFd>);

impl CancelHandle {
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    pub fn cancel(&self) {
        // It fails only after 2^64 calls.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    pub fn is_cancelled(&self) -> bool {
        let mut fds = [PollFd::new(&*self.0, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for CancelHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
