//! Opens and locks a state directory.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;

use muster_core::names::NodeName;

use super::addresses::Addresses;
use super::agent_binary::{FindAgentError, find_agent};
use super::machine_dir::{MachineDir, ReadMachineError};
use super::{LocalConfig, LocalDriver};

#[derive(Debug, Error)]
pub enum OpenError {
    #[error(transparent)]
    Agent(#[from] FindAgentError),
    #[error("cannot use {path} for machines")]
    State {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the machines in {path} belong to another running muster{by}: stop it, or choose another --state")]
    InUse { path: PathBuf, by: String },
    #[error(transparent)]
    Machine(#[from] ReadMachineError),
}

impl LocalDriver {
    /// Opens a state directory. Agents of an earlier driver are not touched until their machine is booted.
    pub fn open(config: LocalConfig) -> Result<Self, OpenError> {
        let agent = find_agent(config.agent.as_deref())?;
        let (nodes, lock) = lock_nodes(&config.state)?;
        let mut addresses = Addresses::default();
        for dir in machine_dirs(&nodes).map_err(|source| OpenError::State { path: nodes.clone(), source })? {
            if let Some(machine) = dir.read()? {
                addresses.put(&machine);
            }
        }
        Ok(Self {
            nodes,
            network: config.network,
            server: config.server,
            trusted_keys: config.trusted_keys,
            agent,
            puppet: config.puppet,
            addresses: Mutex::new(addresses),
            machines: Mutex::default(),
            supervisors: Mutex::new(JoinSet::new()),
            changes: watch::Sender::new(0),
            shutting_down: AtomicBool::new(false),
            _lock: lock,
        })
    }
}

/// The canonical path of the machines' directory, which marks their processes, and its lock.
fn lock_nodes(state: &Path) -> Result<(PathBuf, File), OpenError> {
    let failed = |source| OpenError::State { path: state.to_owned(), source };
    fs::create_dir_all(state.join("nodes")).map_err(failed)?;
    let nodes = state.join("nodes").canonicalize().map_err(failed)?;
    let path = nodes.join(".lock");
    let mut lock =
        OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(source)) => return Err(failed(source)),
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let by = match lock.read_to_string(&mut pid) {
                Ok(1..) => format!(" (pid {})", pid.trim()),
                Ok(0) | Err(_) => String::new(),
            };
            return Err(OpenError::InUse { path: nodes, by });
        }
    }
    // The pid is only for the error message above.
    lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(failed)?;
    Ok((nodes, lock))
}

/// All directories with the name of a node. Other files are ignored.
pub(super) fn machine_dirs(nodes: &Path) -> io::Result<Vec<MachineDir>> {
    let mut dirs = Vec::new();
    for entry in fs::read_dir(nodes)? {
        let name = entry?.file_name().into_string();
        if let Some(node) = name.ok().and_then(|name| NodeName::new(name).ok()) {
            dirs.push(MachineDir::new(nodes, &node));
        }
    }
    Ok(dirs)
}
