//! Starting the agent of a machine, and finding the ones that an earlier driver has started.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use thiserror::Error;
use tokio::process::{Child, Command};

use muster_marked::Process;

use super::agent_log;
use super::machine_dir::MachineDir;

/// The mark of all processes of a machine. Its value is the machine's directory.
pub const MACHINE_MARK: &str = "MUSTER_MACHINE";

/// The agent reads from this which start of the machine it runs in.
const BOOT: &str = "MUSTER_BOOT";

/// How long an agent may take to end: it has to end its run's processes first, which have five seconds.
pub(super) const AGENT_GRACE: Duration = Duration::from_secs(10);

/// What a machine's processes know of the shell that Muster was started from. More would make machines differ by who
/// started them; less, and programs are not found and texts not read.
const KEPT: [&str; 4] = ["PATH", "HOME", "LANG", "RUST_LOG"];

/// How the agent of a machine is started.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub agent: PathBuf,
    pub dir: MachineDir,
    /// Tells this start of the machine from every other: an agent that is started again within it is no new start.
    pub boot: String,
}

/// The identity of a new start of a machine, made by the kernel.
pub(super) fn new_boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

#[derive(Debug, Error)]
pub enum StartError {
    #[error("cannot open the log {path}")]
    Log {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot start {agent}")]
    Spawn {
        agent: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A process that was started, and where its log began.
#[derive(Debug)]
pub(super) struct Started {
    pub child: Child,
    pub log_from: u64,
}

impl Program {
    pub(super) fn start(&self) -> Result<Started, StartError> {
        let path = self.dir.agent_log();
        let ready = agent_log::open(&path).and_then(|(log, from)| Ok((log.try_clone()?, log, from)));
        let (out, err, log_from): (File, File, u64) = ready.map_err(|source| StartError::Log { path, source })?;
        let mut command = Command::new(&self.agent);
        command
            .args(self.arguments())
            .current_dir(self.dir.path())
            .env_clear()
            .envs(KEPT.iter().filter_map(|name| Some((name, env::var_os(name)?))))
            .env(MACHINE_MARK, self.dir.path())
            .env(BOOT, &self.boot)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            // Ctrl-C in a terminal goes to the whole foreground group: the agents are ended in order, by us.
            .process_group(0);
        let child = command.spawn().map_err(|source| StartError::Spawn { agent: self.agent.clone(), source })?;
        Ok(Started { child, log_from })
    }

    fn arguments(&self) -> [OsString; 3] {
        ["run".into(), "--config".into(), self.dir.agent_config().into()]
    }

    /// What became of a process, for people.
    pub(super) fn obituary(&self, exit: &io::Result<ExitStatus>, log_from: u64) -> String {
        let log = self.dir.agent_log();
        let exit = match exit {
            Ok(status) => status.to_string(),
            Err(error) => format!("what cannot be told: {error}"),
        };
        match agent_log::end_of(&log, log_from) {
            Ok(end) if end.is_empty() => format!("with {exit}, and wrote nothing to {}", log.display()),
            Ok(end) => format!("with {exit}: {end} (see {})", log.display()),
            Err(error) => format!("with {exit}, and {} cannot be read: {error}", log.display()),
        }
    }
}

/// Ends the agents of a machine, whoever started them, and nothing else that runs on it.
///
/// They are told from the machine's other processes, which have inherited the mark, by their command line; and from a
/// child that has not become another program yet, and so has the same one, by leading the group that they started in.
pub(super) async fn end_agents(dir: &MachineDir) -> io::Result<()> {
    let config = dir.agent_config();
    let of_agent = [OsStr::new("run"), OsStr::new("--config"), config.as_os_str()];
    let is_agent = |process: &Process| {
        process.arguments().is_ok_and(|arguments| arguments.windows(3).any(|window| window == of_agent))
            && process.leads_group().unwrap_or(false)
    };
    let mark = dir.path().to_owned();
    let found = tokio::task::spawn_blocking(move || muster_marked::find(MACHINE_MARK, mark));
    let agents: Vec<Process> = found.await.map_err(io::Error::other)??.into_iter().filter(is_agent).collect();
    for agent in &agents {
        tracing::info!(pid = agent.pid(), machine = %dir.path().display(), "ending an agent that was left over");
    }
    futures::future::try_join_all(agents.iter().map(|agent| agent.terminate(AGENT_GRACE))).await?;
    Ok(())
}
