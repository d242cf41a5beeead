//! Deploying: the machine's directories, and the agent's configuration.

use std::fs;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::agent_config::{AgentConfig, WriteConfigError};
use super::{LocalDriver, ReadMachineError, locked, may_pass, step_error};
use crate::driver::{MachineSpec, StepError};

#[derive(Debug, Error)]
pub enum DeployError {
    #[error("there is no machine for {node}: it has to be allocated first")]
    NotAllocated { node: String },
    #[error("cannot make the directory {path}")]
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
    let _one_step_at_a_time = slot.lock().await;
    write(driver, spec).map(drop)
}

/// Makes sure of all that is on a machine's disk before its agent starts. `true`: the agent's configuration has changed.
pub(super) fn write(driver: &LocalDriver, spec: &MachineSpec) -> Result<bool, DeployError> {
    let dir = driver.dir(&spec.node);
    let not_allocated = || DeployError::NotAllocated { node: spec.node.to_string() };
    dir.read()?.ok_or_else(not_allocated)?;
    let interfaces = locked(&driver.addresses).kept(spec, &driver.network).cloned().ok_or_else(not_allocated)?;
    for path in [dir.root(), dir.agent_state()] {
        fs::create_dir_all(&path).map_err(|source| DeployError::Directory { path, source })?;
    }
    let config = AgentConfig {
        env: spec.env.clone(),
        node: spec.node.clone(),
        server: driver.server.clone(),
        state_dir: dir.agent_state(),
        root: dir.root(),
        trusted_keys: driver.trusted_keys.clone(),
        puppet: driver.puppet.clone(),
        interfaces,
    };
    Ok(config.write(&dir.agent_config())?)
}

impl DeployError {
    pub(super) fn may_pass(&self) -> bool {
        match self {
            DeployError::NotAllocated { .. } => true,
            DeployError::Directory { source, .. }
            | DeployError::Config(WriteConfigError::Io { source, .. })
            | DeployError::Read(ReadMachineError::Io { source, .. }) => may_pass(source),
            DeployError::Config(WriteConfigError::Unwritable(_))
            | DeployError::Read(ReadMachineError::Content { .. }) => false,
        }
    }
}

impl From<DeployError> for StepError {
    fn from(error: DeployError) -> Self {
        let passes = error.may_pass();
        step_error(error, passes)
    }
}
