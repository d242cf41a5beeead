//! Allocating: an address of its own, written down.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use muster_core::names::EnvName;

use super::machine_dir::{MachineFile, ReadMachineError};
use super::{AddressError, LocalDriver, locked, may_pass, step_error};
use crate::driver::{MachineSpec, StepError};

#[derive(Debug, Error)]
pub enum AllocateError {
    #[error("{path} is a machine of the environment {owner}: choose another --state")]
    OtherEnvironment { path: PathBuf, owner: EnvName },
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(transparent)]
    Read(#[from] ReadMachineError),
    #[error("cannot make the machine's directory {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

pub(super) async fn allocate(driver: &LocalDriver, spec: &MachineSpec) -> Result<(), AllocateError> {
    let slot = driver.slot(&spec.node);
    let _one_step_at_a_time = slot.lock().await;
    let dir = driver.dir(&spec.node);
    let there = dir.read()?;
    if let Some(owner) = there.as_ref().map(|machine| &machine.env).filter(|owner| **owner != spec.env) {
        return Err(AllocateError::OtherEnvironment { path: dir.path().to_owned(), owner: owner.clone() });
    }
    // Locked until it is on disk: two machines must not choose the same address meanwhile.
    let mut addresses = locked(&driver.addresses);
    if there.is_some() && addresses.kept(spec, &driver.network).is_some() {
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
        let passes = match &error {
            AllocateError::OtherEnvironment { .. } | AllocateError::Read(ReadMachineError::Content { .. }) => false,
            // A machine that is released makes room.
            AllocateError::Address(AddressError::Exhausted { .. } | AddressError::ReportResult { .. }) => true,
            AllocateError::Address(AddressError::Outside { .. }) => false,
            AllocateError::Read(ReadMachineError::Io { source, .. }) | AllocateError::Write { source, .. } => {
                may_pass(source)
            }
        };
        step_error(error, passes)
    }
}
