//! The process of a machine's agent: finds its program, starts it, ends agents of an earlier driver, and rotates and quotes
//! its log.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use std::{env, fs, io};

use muster_core::report::summary::clip;
use muster_marked::Process;
use thiserror::Error;
use tokio::process::{Child, Command};

use super::machine_dir::MachineDir;

/// The mark of all processes of a machine. Its value is the machine's directory.
pub const MACHINE_MARK: &str = "MUSTER_MACHINE";

/// Variable with the boot id for the agent.
const BOOT: &str = "MUSTER_BOOT";

/// Time that an agent has to stop: it first ends the processes of its run, which have five seconds.
pub(super) const AGENT_GRACE: Duration = Duration::from_secs(10);

/// Variables that a machine inherits from Muster. More would make machines depend on who started Muster; without these,
/// programs are not found, text is not decoded, and packages are not fetched through a proxy.
const INHERITED: [&str; 12] = [
    "PATH",
    "HOME",
    "LANG",
    "RUST_LOG",
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "NO_PROXY",
];

/// Name of the agent's program.
pub const AGENT: &str = "muster-agent";

/// A larger log is rotated when the agent starts. Two logs cover weeks of a healthy machine and hours of a broken one.
const MAX_SIZE: u64 = 8 * 1024 * 1024;

/// Size of a quotation, for a list of several machines.
const QUOTED_LINES: usize = 4;
const QUOTED_LINE: usize = 300;
/// Size of the end of a log that is read for a quotation.
const TAIL: u64 = 16 * 1024;

/// Configuration for the start of a machine's agent.
#[derive(Clone, Debug)]
pub(super) struct AgentProgram {
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
pub enum StartAgentError {
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

impl AgentProgram {
    pub(super) fn start(&self) -> Result<StartedAgent, StartAgentError> {
        let path = self.dir.agent_log();
        let ready = open(&path).and_then(|(log, from)| Ok((log.try_clone()?, log, from)));
        let (out, err, log_from): (File, File, u64) = ready.map_err(|source| StartAgentError::Log { path, source })?;
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
        let child = command.spawn().map_err(|source| StartAgentError::Spawn { agent: self.agent.clone(), source })?;
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
        match last_lines(&log, log_from) {
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
pub(super) async fn end_agents(dir: &MachineDir) -> io::Result<Vec<u32>> {
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
    Ok(agents.iter().map(Process::pid).collect())
}

#[derive(Debug, Error)]
pub enum FindAgentError {
    #[error("{path} is not an executable program: give the path of {AGENT}")]
    NotAProgram {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{AGENT} is neither next to {own} nor in PATH: install it, or give its path with --agent")]
    Nowhere { own: PathBuf },
}

/// Finds the agent: the given path, else next to the running program, else in `PATH`.
pub fn find_agent(named: Option<&Path>) -> Result<PathBuf, FindAgentError> {
    let own = env::current_exe().unwrap_or_default();
    find_in(named, &own, env::var_os("PATH").as_deref())
}

fn find_in(named: Option<&Path>, own: &Path, path: Option<&OsStr>) -> Result<PathBuf, FindAgentError> {
    if let Some(named) = named {
        return program(named).map_err(|source| FindAgentError::NotAProgram { path: named.to_owned(), source });
    }
    let beside = own.parent().map(|folder| folder.join(AGENT));
    let in_path = path.into_iter().flat_map(env::split_paths).map(|folder| folder.join(AGENT));
    let found = beside.into_iter().chain(in_path).find_map(|candidate| program(&candidate).ok());
    found.ok_or_else(|| FindAgentError::Nowhere { own: own.to_owned() })
}

/// The absolute path of an executable: machines run in other working directories.
fn program(path: &Path) -> io::Result<PathBuf> {
    let path = path.canonicalize()?;
    let found = path.metadata()?;
    if !found.is_file() || found.permissions().mode() & 0o111 == 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not an executable file"));
    }
    Ok(path)
}

/// Opens the log for a start of the agent. Returns its current length.
pub(super) fn open(path: &Path) -> io::Result<(File, u64)> {
    if fs::metadata(path).is_ok_and(|log| log.len() > MAX_SIZE) {
        fs::rename(path, rotated(path))?;
    }
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

fn rotated(path: &Path) -> PathBuf {
    let mut rotated = path.as_os_str().to_owned();
    rotated.push(".1");
    rotated.into()
}

/// The last lines after byte `from`, joined to one line.
pub(super) fn last_lines(path: &Path, from: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(from.max(length.saturating_sub(TAIL)).min(length)))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    let text = plain(&String::from_utf8_lossy(&bytes));
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(QUOTED_LINES)..].iter().map(|line| clip(line, QUOTED_LINE));
    Ok(last.collect::<Vec<_>>().join(" | "))
}

/// Removes colours and other control sequences, so that a log cannot control the reader's terminal.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' && characters.next_if_eq(&'[').is_some() {
            // A sequence ends with the first letter.
            while characters.next().is_some_and(|character| !character.is_ascii_alphabetic()) {}
        } else if character == '\t' {
            plain.push(' ');
        } else if character == '\n' || !character.is_control() {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn put(folder: &Path, mode: u32) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join(AGENT);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.canonicalize().unwrap()
    }

    #[test]
    fn given_path_comes_first_then_neighbour_then_path() {
        let place = tempfile::tempdir().unwrap();
        let [named, beside, path] = ["named", "beside", "path"].map(|name| place.path().join(name));
        let own = beside.join("muster");
        let search = env::join_paths([place.path().join("nothing"), path.clone()]).unwrap();

        let nowhere = find_in(None, &own, Some(&search)).unwrap_err().to_string();
        assert!(nowhere.contains("install it, or give its path with --agent"), "{nowhere}");

        let in_path = put(&path, 0o755);
        assert_eq!(find_in(None, &own, Some(&search)).unwrap(), in_path);
        let is_beside = put(&beside, 0o755);
        assert_eq!(find_in(None, &own, Some(&search)).unwrap(), is_beside);
        let is_named = put(&named, 0o755);
        assert_eq!(find_in(Some(&is_named), &own, Some(&search)).unwrap(), is_named);
    }

    #[test]
    fn given_path_that_is_not_executable_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("muster");
        put(place.path(), 0o755);
        let not_executable = put(&place.path().join("other"), 0o644);
        for bad in [not_executable, place.path().join("missing"), place.path().to_owned()] {
            let error = find_in(Some(&bad), &own, None).unwrap_err();
            assert!(error.to_string().contains("is not an executable program"), "{error}");
        }
    }

    #[test]
    fn quotation_has_only_lines_since_the_start() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.log");
        fs::write(&path, "an older start\n").unwrap();
        let (_, from) = open(&path).unwrap();
        assert_eq!(last_lines(&path, from).unwrap(), "");

        fs::write(&path, "an older start\n1\n2\n\n3\n\u{1b}[31mERROR\u{1b}[0m port\ttaken\n5").unwrap();
        assert_eq!(last_lines(&path, from).unwrap(), "2 | 3 | ERROR port taken | 5");

        fs::write(&path, "x".repeat(100_000)).unwrap();
        assert!(last_lines(&path, from).unwrap().len() <= QUOTED_LINE);
        fs::write(&path, "").unwrap();
        assert_eq!(last_lines(&path, from).unwrap(), "", "the log was truncated");
    }

    #[test]
    fn large_log_is_rotated() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.log");
        File::create(&path).unwrap().set_len(MAX_SIZE + 1).unwrap();
        let (_, length) = open(&path).unwrap();
        assert_eq!(length, 0);
        assert_eq!(fs::metadata(rotated(&path)).unwrap().len(), MAX_SIZE + 1);
    }
}
