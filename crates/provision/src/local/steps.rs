//! The steps of the driver that start a machine. `allocate` assigns its addresses, `deploy` creates its directories and
//! the agent's configuration, `boot` starts the agent and its supervisor.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use muster_core::names::{EnvName, NodeName};
use muster_core::release::manifest::PublicKey;
use serde::Serialize;
use thiserror::Error;

use crate::driver::{MachineSpec, StepError};

use super::agent_process::{AgentProgram, end_agents, new_boot_id};
use super::listeners::Listener;
use super::machine_dir::{MachineFile, ReadMachineError, replace};
use super::supervisor::{AgentStatus, SupervisorHandle, supervise};
use super::{AssignAddressError, LocalDriver, StartAgentError, is_transient, locked, step_error};

#[derive(Debug, Error)]
pub enum AllocateError {
    #[error("{path} is a machine of environment {owner}: choose another --state")]
    OtherEnvironment { path: PathBuf, owner: EnvName },
    #[error(transparent)]
    Address(#[from] AssignAddressError),
    #[error(transparent)]
    Read(#[from] ReadMachineError),
    #[error("cannot create the machine's directory {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

pub(super) async fn allocate(driver: &LocalDriver, spec: &MachineSpec) -> Result<(), AllocateError> {
    let slot = driver.slot(&spec.node);
    let _step_lock = slot.lock().await;
    let dir = driver.dir(&spec.node);
    let existing = dir.read()?;
    if let Some(owner) = existing.as_ref().map(|machine| &machine.env).filter(|owner| **owner != spec.env) {
        return Err(AllocateError::OtherEnvironment { path: dir.path().to_owned(), owner: owner.clone() });
    }
    // Locked until it is on disk, so that no other machine chooses the same address.
    let mut addresses = locked(&driver.addresses);
    if existing.is_some() && addresses.matching(spec, &driver.network).is_some() {
        return Ok(());
    }
    let busy = Listener::all().into_iter().map(|listener| listener.address).collect();
    let interfaces = addresses.choose(spec, &driver.network, &busy)?;
    let machine = MachineFile { env: spec.env.clone(), node: spec.node.clone(), interfaces };
    dir.write(&machine).map_err(|source| AllocateError::Write { path: dir.path().to_owned(), source })?;
    addresses.put(&machine);
    Ok(())
}

impl From<AllocateError> for StepError {
    fn from(error: AllocateError) -> Self {
        let transient = match &error {
            AllocateError::OtherEnvironment { .. } | AllocateError::Read(ReadMachineError::Content { .. }) => false,
            // A released machine frees its address.
            AllocateError::Address(AssignAddressError::Exhausted { .. } | AssignAddressError::InUse { .. }) => true,
            AllocateError::Address(AssignAddressError::Outside { .. }) => false,
            AllocateError::Read(ReadMachineError::Io { source, .. }) | AllocateError::Write { source, .. } => {
                is_transient(source)
            }
        };
        step_error(error, transient)
    }
}

#[derive(Debug, Error)]
pub enum DeployError {
    #[error("{node} has no machine: allocate one first")]
    NotAllocated { node: String },
    #[error("cannot create the directory {path}")]
    Directory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Config(#[from] WriteConfigError),
    #[error(transparent)]
    Read(#[from] ReadMachineError),
}

pub(super) async fn deploy(driver: &LocalDriver, spec: &MachineSpec) -> Result<(), DeployError> {
    let slot = driver.slot(&spec.node);
    let _step_lock = slot.lock().await;
    write_files(driver, spec).map(drop)
}

/// Creates the directories and writes the agent's configuration. `true`: the configuration has changed.
pub(super) fn write_files(driver: &LocalDriver, spec: &MachineSpec) -> Result<bool, DeployError> {
    let dir = driver.dir(&spec.node);
    let not_allocated = || DeployError::NotAllocated { node: spec.node.to_string() };
    dir.read()?.ok_or_else(not_allocated)?;
    let interfaces = locked(&driver.addresses).matching(spec, &driver.network).cloned().ok_or_else(not_allocated)?;
    for path in [dir.root(), dir.agent_state()] {
        fs::create_dir_all(&path).map_err(|source| DeployError::Directory { path, source })?;
    }
    let config = AgentConfig {
        env: spec.env.clone(),
        node: spec.node.clone(),
        server: driver.server.clone(),
        token_file: driver.token_file.clone(),
        state_dir: dir.agent_state(),
        root: dir.root(),
        trusted_keys: driver.trusted_keys.clone(),
        puppet: driver.puppet.clone(),
        puppet_agent_lock: "none",
        interfaces,
    };
    Ok(config.write(&dir.agent_config())?)
}

impl DeployError {
    pub(super) fn is_transient(&self) -> bool {
        match self {
            DeployError::NotAllocated { .. } => true,
            DeployError::Directory { source, .. }
            | DeployError::Config(WriteConfigError::Io { source, .. })
            | DeployError::Read(ReadMachineError::Io { source, .. }) => is_transient(source),
            DeployError::Config(WriteConfigError::Unwritable(_))
            | DeployError::Read(ReadMachineError::Content { .. }) => false,
        }
    }
}

impl From<DeployError> for StepError {
    fn from(error: DeployError) -> Self {
        let transient = error.is_transient();
        step_error(error, transient)
    }
}

/// The keys of `agent.toml`. TOML requires tables at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct AgentConfig {
    pub env: EnvName,
    pub node: NodeName,
    pub server: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    pub state_dir: PathBuf,
    pub root: PathBuf,
    pub trusted_keys: Vec<PublicKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub puppet: Option<PathBuf>,
    /// Nodes on one machine run side by side, and change only their own directories.
    pub puppet_agent_lock: &'static str,
    pub interfaces: BTreeMap<String, Ipv4Addr>,
}

#[derive(Debug, Error)]
pub enum WriteConfigError {
    /// Most likely a path that is not UTF-8.
    #[error("cannot encode the agent's configuration as TOML")]
    Unwritable(#[source] toml::ser::Error),
    #[error("cannot write {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl AgentConfig {
    fn text(&self) -> Result<String, WriteConfigError> {
        let values = toml::to_string(self).map_err(WriteConfigError::Unwritable)?;
        Ok(format!("# Written by Muster at each start of the machine: changes made here are lost.\n{values}"))
    }

    /// Writes the file. `false`: it has this content already.
    pub(super) fn write(&self, path: &Path) -> Result<bool, WriteConfigError> {
        let text = self.text()?;
        if std::fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(false);
        }
        match replace(path, text.as_bytes()) {
            Ok(()) => Ok(true),
            Err(source) => Err(WriteConfigError::Io { path: path.to_owned(), source }),
        }
    }
}

#[derive(Debug, Error)]
pub enum BootError {
    #[error("the machines are being powered off")]
    ShuttingDown,
    #[error(transparent)]
    Deploy(#[from] DeployError),
    #[error("cannot end the agent of an earlier boot")]
    LeftOver(#[source] io::Error),
    #[error("cannot create a boot id for the machine")]
    Identity(#[source] io::Error),
    #[error(transparent)]
    Start(#[from] StartAgentError),
}

pub(super) async fn boot(driver: &LocalDriver, spec: &MachineSpec) -> Result<(), BootError> {
    let slot = driver.slot(&spec.node);
    let mut handle = slot.lock().await;
    if driver.is_shutting_down() {
        return Err(BootError::ShuttingDown);
    }
    // The server's address may have changed.
    let changed = write_files(driver, spec)?;
    match handle.as_mut() {
        Some(up) if is_supervised(up) && !changed => {
            if *up.status.borrow() != AgentStatus::Running {
                up.restart_now();
                // Until the supervisor reacts, the machine would still be observed as broken. An error: it is gone.
                let _ = up.status.wait_for(|status| *status == AgentStatus::Running).await;
            }
            return Ok(());
        }
        Some(up) => up.stop().await,
        None => {}
    }
    *handle = None;
    end_agents(&driver.dir(&spec.node)).await.map_err(BootError::LeftOver)?;
    *handle = Some(start(driver, spec)?);
    Ok(())
}

/// True if the supervisor is running.
fn is_supervised(handle: &SupervisorHandle) -> bool {
    handle.status.has_changed().is_ok() && *handle.status.borrow() != AgentStatus::Stopped
}

fn start(driver: &LocalDriver, spec: &MachineSpec) -> Result<SupervisorHandle, BootError> {
    let boot = new_boot_id().map_err(BootError::Identity)?;
    let program = AgentProgram { agent: driver.agent.clone(), dir: driver.dir(&spec.node), boot };
    let started = program.start()?;
    let changes = driver.changes.clone();
    let notify = move || changes.send_modify(|count| *count = count.wrapping_add(1));
    let (handle, supervisor) = supervise(program, started, notify);
    let mut supervisors = locked(&driver.supervisors);
    while let Some(ended) = supervisors.try_join_next() {
        if let Err(error) = ended {
            tracing::error!(%error, "a supervisor has failed");
        }
    }
    supervisors.spawn(supervisor);
    Ok(handle)
}

impl From<BootError> for StepError {
    fn from(error: BootError) -> Self {
        let transient = match &error {
            BootError::ShuttingDown | BootError::LeftOver(_) => true,
            BootError::Identity(source) => is_transient(source),
            BootError::Deploy(error) => error.is_transient(),
            BootError::Start(StartAgentError::Log { source, .. } | StartAgentError::Spawn { source, .. }) => {
                is_transient(source)
            }
        };
        step_error(error, transient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_is_written_in_the_agents_format() {
        let mut config = AgentConfig {
            env: EnvName::new("quickstart").unwrap(),
            node: NodeName::new("web1").unwrap(),
            server: "http://127.0.0.1:7077".into(),
            token_file: Some("/s/token".into()),
            state_dir: "/s/nodes/web1/agent".into(),
            root: "/s/nodes/web1/root".into(),
            trusted_keys: vec![PublicKey::from_bytes([7; 32])],
            puppet: None,
            puppet_agent_lock: "none",
            interfaces: BTreeMap::from([("eth0".to_owned(), Ipv4Addr::new(127, 77, 0, 2))]),
        };
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("agent.toml");
        assert!(config.write(&path).unwrap());
        assert!(!config.write(&path).unwrap(), "unchanged content is not written");
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            r#"# Written by Muster at each start of the machine: changes made here are lost.
env = "quickstart"
node = "web1"
server = "http://127.0.0.1:7077"
token_file = "/s/token"
state_dir = "/s/nodes/web1/agent"
root = "/s/nodes/web1/root"
trusted_keys = ["ed25519:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc="]
puppet_agent_lock = "none"

[interfaces]
eth0 = "127.77.0.2"
"#
        );
        config.puppet = Some("/opt/puppet".into());
        assert!(config.write(&path).unwrap());
        assert!(std::fs::read_to_string(&path).unwrap().contains("puppet = \"/opt/puppet\"\n"));
    }
}
