//! Starts the program, limits its output, ends it at its deadline, and records its end.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock, fstat, stat};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, set_child_subreaper, setsid, waitid};

use crate::files::{EndFile, OsText, ProgramEnd, ProgramFile, SupervisedDir, VERSION};
use crate::output::OutputFile;
use crate::packages;
use crate::pid_lock::Reservation;
use crate::processes::{OpenProcess, ProcessTree, pause};

/// Interval at which the output is limited. The fastest writer writes some tens of megabytes in it.
pub(crate) const POLL: Duration = Duration::from_millis(20);
/// Interval at which the locks of package managers are read.
const LOCK_POLL: Duration = Duration::from_millis(200);
/// Time that killed processes have to end. One that takes longer hangs in the kernel, and no signal helps.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a failed write of the result is repeated.
const WRITE_RETRY: Duration = Duration::from_secs(1);

pub(crate) fn run(directory: &Path) -> io::Result<()> {
    let files = SupervisedDir(directory);
    let program = files.read_program()?;
    // It fails if the process leads a session already.
    let _ = setsid();
    set_child_subreaper(Some(rustix::process::getpid()))?;
    files.reserve_end()?;
    let _lock = record_start(files)?;
    let end = Supervision::start(&program).map_or_else(|error| ProgramEnd::not_started(&error), Supervision::run);
    let dpkg_interrupted = packages::dpkg_is_interrupted(&program.packages.dpkg);
    let end = EndFile { version: VERSION, end, at_millis: now_millis(), dpkg_interrupted };
    loop {
        match files.write_end(&end) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => pause(WRITE_RETRY),
            // Without the directory there is no reader of the result.
            written => return written,
        }
    }
}

/// Writes the pid into the lock file, which is the standard input and locked by the agent. Started by hand, the supervisor
/// locks the file itself.
fn record_start(files: SupervisedDir<'_>) -> io::Result<File> {
    let (path, input) = (files.lock(), io::stdin());
    let (expected, found) = (stat(&path)?, fstat(&input)?);
    let mut lock = if (expected.st_dev, expected.st_ino) == (found.st_dev, found.st_ino) {
        File::from(input.as_fd().try_clone_to_owned()?)
    } else {
        File::options().read(true).write(true).open(&path)?
    };
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    lock.set_len(0)?;
    lock.write_all(std::process::id().to_string().as_bytes())?;
    lock.sync_all()?;
    Ok(lock)
}

#[expect(clippy::disallowed_methods, reason = "the time of the end is for people; limits use a monotonic clock")]
fn now_millis() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or_default()
}

struct Supervision<'a> {
    program: &'a ProgramFile,
    output: OutputFile,
    deadline: Instant,
}

impl<'a> Supervision<'a> {
    fn start(program: &'a ProgramFile) -> io::Result<Self> {
        let output = OutputFile::create(Path::new(&program.output.to_os()))?;
        Ok(Self { program, output, deadline: Instant::now() + program.deadline })
    }

    fn run(mut self) -> ProgramEnd {
        if let [repair, args @ ..] = &self.program.packages.repair[..]
            && packages::dpkg_is_interrupted(&self.program.packages.dpkg)
        {
            let mut command = Command::new(repair);
            command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
            // If it fails, the program fails for the same reason, and its output says so.
            let _ = self.execute(command, None);
        }
        let mut command = Command::new(self.program.path.to_os());
        command.args(self.program.args.iter().map(OsText::to_os));
        let pid_file = self.program.pid_file.as_ref().map(OsText::to_os);
        let end = self
            .execute(command, pid_file.as_deref().map(Path::new))
            .unwrap_or_else(|error| ProgramEnd::not_started(&error));
        // What is missing in the file is lost; the result counts.
        let _ = self.output.finish();
        end
    }

    /// Runs a command until it has ended. No process of it is left, except those that it leaves behind after an exit.
    fn execute(&mut self, mut command: Command, pid_file: Option<&Path>) -> io::Result<ProgramEnd> {
        command
            .current_dir(self.program.directory.to_os())
            .stdin(Stdio::null())
            .stdout(self.output.handle()?)
            .stderr(self.output.handle()?)
            .process_group(0);
        let environment = self.program.environment.iter();
        command.env_clear().envs(environment.map(|(name, value)| (name, value.to_os())));
        let reservation = match pid_file.map(|path| Reservation::wait(path, self.deadline)).transpose() {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(ProgramEnd::Deadline),
            // Without the directory there is no lock, and the program runs all the same.
            reserved => reserved.ok().flatten(),
        };
        let mut child = command.spawn()?;
        drop(command);
        let _pid_file = reservation.and_then(|reservation| reservation.write(child.id()).ok());
        let leader = open(&child).inspect_err(|_| drop((child.kill(), child.wait())))?;
        let tree = ProcessTree::new(&self.program.mark, leader.pid);
        let ended = if self.wait(&leader, &tree, self.deadline) { end_of(leader.pid)? } else { ProgramEnd::Deadline };
        match ended {
            ProgramEnd::Deadline => self.ask_to_end(&leader, &tree),
            // The program cannot end its processes any more.
            ProgramEnd::Killed { .. } => self.end_rest(&tree),
            ProgramEnd::Exited { .. } | ProgramEnd::NotStarted { .. } => {}
        }
        // One that does not end after SIGKILL hangs in the kernel.
        if leader.wait(KILL_TIMEOUT) {
            child.wait()?;
        }
        Ok(ended)
    }

    /// Waits for the end of the leader. `false`: it is still running at that time.
    fn wait(&mut self, leader: &OpenProcess, tree: &ProcessTree, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if leader.wait(left.min(POLL)) {
                return true;
            }
            self.output.trim();
            tree.reap_orphans();
            if left.is_zero() {
                return false;
            }
        }
    }

    /// The deadline has passed: SIGINT, then SIGTERM to the program itself, then its other processes.
    fn ask_to_end(&mut self, leader: &OpenProcess, tree: &ProcessTree) {
        for signal in [Signal::INT, Signal::TERM] {
            leader.signal(signal);
            if self.wait(leader, tree, Instant::now() + self.program.grace) {
                break;
            }
        }
        self.end_rest(tree);
    }

    /// Waits for a package manager of the program, then ends all its processes: SIGTERM, after the grace period SIGKILL.
    fn end_rest(&mut self, tree: &ProcessTree) {
        let until = Instant::now() + self.program.packages.limit;
        while Instant::now() < until && self.installs_packages(tree) {
            pause(LOCK_POLL);
            self.output.trim();
            tree.reap_orphans();
        }
        if !tree.signal_all(Signal::TERM, self.program.grace) {
            tree.signal_all(Signal::KILL, KILL_TIMEOUT);
        }
        tree.kill_group();
    }

    fn installs_packages(&self, tree: &ProcessTree) -> bool {
        packages::lock_holder(&self.program.packages).is_some_and(|pid| pid == 0 || tree.contains(pid))
    }
}

fn open(child: &Child) -> io::Result<OpenProcess> {
    let pid = Pid::from_raw(child.id().cast_signed()).ok_or_else(|| io::Error::other("the pid is 0"))?;
    OpenProcess::open(pid)
}

/// The end of a child, which is not reaped: until then the number of its process group is not reused.
fn end_of(pid: Pid) -> io::Result<ProgramEnd> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(pid), options)?.ok_or_else(|| io::Error::other("the exit status is unknown"))?;
    Ok(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ProgramEnd::Exited { code },
        (None, signal) => ProgramEnd::Killed { signal: signal.unwrap_or_default() },
    })
}
