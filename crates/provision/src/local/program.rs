//! Starts the agent of a machine, and ends agents of an earlier driver.

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

/// Variable with the boot id for the agent.
const BOOT: &str = "MUSTER_BOOT";

/// Time that an agent has to stop: it first ends the processes of its run, which have five seconds.
pub(super) const AGENT_GRACE: Duration = Duration::from_secs(10);

/// Variables that a machine inherits from Muster. More would make machines depend on who started Muster; without these,
/// programs are not found and text is not decoded.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "RUST_LOG"];

/// Configuration for the start of a machine's agent.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub agent: PathBuf,
    pub dir: MachineDir,
    /// Boot id of the machine. A restart of the agent is no reboot.
    pub boot: String,
}

/// Creates a boot id.
pub(super) fn new_boot_id() -> io::Result<String> {
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

/// A started agent, and the length of its log at the start.
#[derive(Debug)]
pub(super) struct StartedAgent {
    pub child: Child,
    pub log_from: u64,
}

impl Program {
    pub(super) fn start(&self) -> Result<StartedAgent, StartError> {
        let path = self.dir.agent_log();
        let ready = agent_log::open(&path).and_then(|(log, from)| Ok((log.try_clone()?, log, from)));
        let (out, err, log_from): (File, File, u64) = ready.map_err(|source| StartError::Log { path, source })?;
        let mut command = Command::new(&self.agent);
        command
            .args(self.arguments())
            .current_dir(self.dir.path())
            .env_clear()
            .envs(INHERITED.iter().filter_map(|name| Some((name, env::var_os(name)?))))
            .env(MACHINE_MARK, self.dir.path())
            .env(BOOT, &self.boot)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            // Ctrl-C in a terminal goes to the foreground group; the driver stops the agents itself.
            .process_group(0);
        let child = command.spawn().map_err(|source| StartError::Spawn { agent: self.agent.clone(), source })?;
        Ok(StartedAgent { child, log_from })
    }

    fn arguments(&self) -> [OsString; 3] {
        ["run".into(), "--config".into(), self.dir.agent_config().into()]
    }

    /// Describes the end of an agent with its last log lines.
    pub(super) fn describe_exit(&self, exit: &io::Result<ExitStatus>, log_from: u64) -> String {
        let log = self.dir.agent_log();
        let exit = match exit {
            Ok(status) => status.to_string(),
            Err(error) => format!("an unknown status: {error}"),
        };
        match agent_log::last_lines(&log, log_from) {
            Ok(end) if end.is_empty() => format!("with {exit}, and wrote nothing to {}", log.display()),
            Ok(end) => format!("with {exit}: {end} (see {})", log.display()),
            Err(error) => format!("with {exit}, and {} cannot be read: {error}", log.display()),
        }
    }
}

/// Ends all agents of a machine, and no other process on it.
///
/// All processes of the machine carry its mark. Agents are identified by their command line, and distinguished from a child
/// between fork and exec, which has the same command line, by leading their process group.
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
        tracing::info!(pid = agent.pid(), machine = %dir.path().display(), "ending an agent of an earlier driver");
    }
    futures::future::try_join_all(agents.iter().map(|agent| agent.terminate(AGENT_GRACE))).await?;
    Ok(())
}
