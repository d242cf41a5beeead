//! The steps `allocate` and `deploy`: assign addresses, then create the machine's directories and the agent's configuration.

use std::fs;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use muster_core::names::EnvName;

use super::agent_config::{AgentConfig, WriteConfigError};
use super::machine_dir::{MachineFile, ReadMachineError};
use super::{AddressError, LocalDriver, is_transient, locked, step_error};
use crate::driver::{MachineSpec, StepError};

#[derive(Debug, Error)]
pub enum AllocateError {
    #[error("{path} is a machine of environment {owner}: choose another --state")]
    OtherEnvironment { path: PathBuf, owner: EnvName },
    #[error(transparent)]
    Address(#[from] AddressError),
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
    let interfaces = addresses.choose(spec, &driver.network)?;
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
            AllocateError::Address(AddressError::Exhausted { .. } | AddressError::ReportResult { .. }) => true,
            AllocateError::Address(AddressError::Outside { .. }) => false,
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
        state_dir: dir.agent_state(),
        root: dir.root(),
        trusted_keys: driver.trusted_keys.clone(),
        puppet: driver.puppet.clone(),
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
