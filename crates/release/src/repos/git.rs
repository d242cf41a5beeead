//! Runs `git`: without a shell, without questions, with a deadline, and never longer than whoever asked.
//!
//! Its output goes to files and not through pipes: what it leaves running behind it (ssh keeps a connection open for the
//! next one) would hold a pipe open, and we would wait for it for ever.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use thiserror::Error;

use super::cancel::Cancel;

/// So much of what git said is kept, from its end: there it says why it failed.
const SAID: u64 = 4 * 1024;
/// What git says after every failure of a transport; our own hints are nearer to the cause.
const ADVICE: [&str; 2] = ["Please make sure you have the correct access rights", "and the repository exists."];
/// How long git may take to tidy up after itself once it was told to end.
const TIDYING: Duration = Duration::from_secs(2);
/// What a repository around us, or a hook that we were started from, would have git believe.
const NOT_OURS: [&str; 8] = [
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
    #[error("git is not installed")]
    NotInstalled,
    #[error("cannot run git")]
    Run(#[source] io::Error),
    #[error("git {verb} failed: {}", if said.is_empty() { "it did not say why" } else { said })]
    Failed { verb: &'static str, said: String },
    #[error("no answer within {after:?}{}", if said.is_empty() { String::new() } else { format!("; git said: {said}") })]
    Deadline { after: Duration, said: String },
    #[error("cancelled")]
    Cancelled,
}

/// Where, and until when, git may work.
#[derive(Clone, Copy, Debug)]
pub struct Git<'a> {
    /// Where relative sources begin: the release.
    pub directory: &'a Path,
    /// Where the files for its output are made.
    pub temporary: &'a Path,
    pub deadline: Duration,
    pub cancel: &'a Cancel,
}

impl Git<'_> {
    /// Runs one command in a repository; gives what it printed, as a file at its beginning.
    pub fn run(&self, repository: &Path, verb: &'static str, args: &[&str]) -> Result<File, GitError> {
        self.run_with_input(repository, verb, args, Stdio::null())
    }

    /// The same with something to read.
    pub fn run_with_input(
        &self,
        repository: &Path,
        verb: &'static str,
        args: &[&str],
        input: Stdio,
    ) -> Result<File, GitError> {
        let mut printed = tempfile_in(self.temporary).map_err(GitError::Run)?;
        let mut said = tempfile_in(self.temporary).map_err(GitError::Run)?;
        let mut command = Command::new("git");
        command.arg("--git-dir").arg(repository).arg(verb).args(args);
        command.current_dir(self.directory).stdin(input);
        command.stdout(printed.try_clone().map_err(GitError::Run)?).stderr(said.try_clone().map_err(GitError::Run)?);
        NOT_OURS.iter().for_each(|name| {
            command.env_remove(name);
        });
        // Nobody sits there to answer; and what it says is compared with words that we know.
        command.env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C").process_group(0);
        let child = command.spawn().map_err(|error| match error.kind() == io::ErrorKind::NotFound {
            true => GitError::NotInstalled,
            false => GitError::Run(error),
        })?;
        let ended = self.wait(child).map_err(GitError::Run)?;
        let said = end_of(&mut said);
        match ended {
            Ended::Itself(status) if status.success() => {
                printed.seek(SeekFrom::Start(0)).map_err(GitError::Run)?;
                Ok(printed)
            }
            Ended::Itself(_) => Err(GitError::Failed { verb, said }),
            Ended::Deadline => Err(GitError::Deadline { after: self.deadline, said }),
            Ended::Cancelled => Err(GitError::Cancelled),
        }
    }

    fn wait(&self, mut child: Child) -> io::Result<Ended> {
        let group = Pid::from_child(&child);
        let process = match pidfd_open(group, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(error) => {
                end(group, Signal::KILL);
                child.wait()?;
                return Err(error.into());
            }
        };
        let mut ended = None;
        let mut signal_at = Instant::now() + self.deadline;
        let mut fds = [PollFd::new(&process, PollFlags::IN), PollFd::new(self.cancel, PollFlags::IN)];
        loop {
            let left = signal_at.saturating_duration_since(Instant::now());
            // Once it has been told to end, only that counts.
            let watched = if ended.is_none() { 2 } else { 1 };
            let time =
                Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
            match poll(&mut fds[..watched], Some(&time)) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    end(group, Signal::KILL);
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
                    ended = Some(Ended::Cancelled);
                    end(group, Signal::TERM);
                    signal_at = Instant::now() + TIDYING;
                }
                (_, true, None) => {
                    ended = Some(Ended::Deadline);
                    end(group, Signal::TERM);
                    signal_at = Instant::now() + TIDYING;
                }
                (_, true, Some(_)) => {
                    end(group, Signal::KILL);
                    break;
                }
                (_, false, _) => {}
            }
        }
        let status = child.wait()?;
        match ended {
            None => Ok(Ended::Itself(status)),
            Some(ended) => {
                // Those whom git started, and who did not hear it.
                end(group, Signal::KILL);
                Ok(ended)
            }
        }
    }
}

enum Ended {
    Itself(ExitStatus),
    Deadline,
    Cancelled,
}

/// Ends git and all that it has started; whoever is gone already is gone.
fn end(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

/// A file without a name: it is gone with us.
fn tempfile_in(directory: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let path: PathBuf = crate::unfinished::Unfinished::beside(directory, "output").path().to_owned();
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn end_of(said: &mut File) -> String {
    let mut text = Vec::new();
    let length = said.seek(SeekFrom::End(0)).unwrap_or_default();
    let read =
        said.seek(SeekFrom::Start(length.saturating_sub(SAID))).and_then(|_| said.take(SAID).read_to_end(&mut text));
    if read.is_err() {
        return "what it said cannot be read".to_owned();
    }
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !ADVICE.contains(line));
    lines.collect::<Vec<_>>().join("; ")
}
