//! Programs that outlive the agent: appliers and hooks. Each runs under a [supervisor](muster_supervisor), which is started
//! here, and whose result is awaited here, by this agent or a later one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use muster_marked::Process;
use muster_supervisor::files::{EndFile, ProgramFile, RunState, SupervisedDir};
use tokio_util::sync::CancellationToken;

use crate::run::log;

/// Present if systemd is the init system, see sd_booted(3).
const SYSTEMD: &str = "/run/systemd/system";
/// Interval at which the pid of a supervisor is read that has just been started.
const START_POLL: Duration = Duration::from_millis(20);

/// Starts supervisors.
#[derive(Clone, Debug)]
pub struct Launcher {
    program: PathBuf,
    /// Arguments before the directory.
    arguments: Vec<String>,
    /// Each program gets a transient systemd scope: a restart of the agent's service then ends the agent only.
    use_scope: bool,
}

/// How a supervised program has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SupervisedEnd {
    Ended(EndFile),
    /// The supervisor has ended without a result: the host was rebooted, or the supervisor was killed.
    Lost,
    /// The program was never started.
    NotStarted {
        problem: String,
    },
}

impl Launcher {
    /// The supervisor in the binary of this process, which may have been replaced on disk.
    pub fn for_this_host() -> Self {
        let use_scope = rustix::process::geteuid().is_root() && Path::new(SYSTEMD).is_dir();
        let program = format!("/proc/{}/exe", std::process::id()).into();
        Self { program, arguments: vec![muster_supervisor::ARGUMENT.to_owned()], use_scope }
    }

    /// A supervisor in another binary, without systemd.
    pub fn new(program: PathBuf, arguments: Vec<String>) -> Self {
        Self { program, arguments, use_scope: false }
    }

    /// Runs a program to its end. `unit` names the systemd scope. `None` if the agent shuts down, which does not affect a
    /// program that was started.
    pub async fn run(
        &self,
        directory: &Path,
        unit: &str,
        program: &ProgramFile,
        cancel: &CancellationToken,
    ) -> Option<SupervisedEnd> {
        if cancel.is_cancelled() {
            return None;
        }
        if self.use_scope {
            match self.start_and_wait(directory, Some(unit), program, cancel).await? {
                SupervisedEnd::NotStarted { problem } => {
                    tracing::warn!(unit, problem, "cannot start a systemd scope; the run gets a session of its own");
                }
                end @ (SupervisedEnd::Ended(_) | SupervisedEnd::Lost) => return Some(end),
            }
        }
        self.start_and_wait(directory, None, program, cancel).await
    }

    async fn start_and_wait(
        &self,
        directory: &Path,
        unit: Option<&str>,
        program: &ProgramFile,
        cancel: &CancellationToken,
    ) -> Option<SupervisedEnd> {
        if let Err(error) = self.start(directory, unit, program) {
            return Some(SupervisedEnd::NotStarted { problem: error.to_string() });
        }
        wait(directory, cancel).await
    }

    /// Starts the supervisor. The lock of the directory is held from now on until it has ended.
    fn start(&self, directory: &Path, unit: Option<&str>, program: &ProgramFile) -> io::Result<()> {
        let files = SupervisedDir(directory);
        let lock = files.create(program)?;
        let log = private_log(&files.log())?;
        let mut command = match unit {
            None => {
                let mut command = Command::new(&self.program);
                command.arg0("muster-agent");
                command
            }
            // It moves itself into the scope and executes the supervisor in its place, with the same pid.
            Some(unit) => {
                let mut command = Command::new("systemd-run");
                command.args(["--scope", "--collect", "--quiet"]).arg(format!("--unit={unit}")).arg("--");
                command.arg(&self.program);
                command
            }
        };
        let environment = program.environment.iter().map(|(name, value)| (name, value.to_os()));
        command
            .args(&self.arguments)
            .arg(directory)
            .env_clear()
            .envs(environment)
            .current_dir("/")
            .stdin(Stdio::from(lock))
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C in a terminal is for the agent.
            .process_group(0);
        // Not waited for here: the agent reaps all its children, and a later agent may have to wait for this one.
        command.spawn().map(drop)
    }
}

fn private_log(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Waits for the end of a supervised program, which any agent may have started. `None` if the agent shuts down.
pub async fn wait(directory: &Path, cancel: &CancellationToken) -> Option<SupervisedEnd> {
    loop {
        let running = match SupervisedDir(directory).state() {
            Ok(RunState::Running { pid }) => pid,
            Ok(RunState::Ended(end)) => return Some(SupervisedEnd::Ended(end)),
            Ok(RunState::Lost) => return Some(SupervisedEnd::Lost),
            Ok(RunState::NotStarted) => {
                let log = log::last_lines(&SupervisedDir(directory).log(), 1).join("");
                let problem = if log.is_empty() { "the supervisor did not start".to_owned() } else { log };
                return Some(SupervisedEnd::NotStarted { problem });
            }
            Err(error) => {
                tracing::error!(directory = %directory.display(), %error, "cannot read the result of a run");
                return Some(SupervisedEnd::Lost);
            }
        };
        // The lock is held, so this is the supervisor, or it ends at this moment.
        let process = running.and_then(|pid| Process::open(pid).ok().flatten());
        let ended = async {
            match &process {
                Some(process) if process.wait().await.is_ok() => {}
                Some(_) | None => tokio::time::sleep(START_POLL).await,
            }
        };
        tokio::select! {
            () = cancel.cancelled() => return None,
            () = ended => {}
        }
    }
}

/// The error of a program that could not be started.
pub fn start_error(errno: Option<i32>, message: String) -> io::Error {
    errno.map_or_else(|| io::Error::other(message), io::Error::from_raw_os_error)
}

/// The time at which a program has ended.
pub fn ended_at(end: &EndFile, now: Timestamp) -> Timestamp {
    let millis = i64::try_from(end.at_millis).ok();
    millis.and_then(|millis| Timestamp::from_millisecond(millis).ok()).unwrap_or(now)
}
