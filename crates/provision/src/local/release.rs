//! Releasing: the machine is switched off, and all that is on it is removed.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::power_off::{PowerOffError, power_off};
use super::{LocalDriver, locked, may_pass, step_error};
use crate::driver::{MachineSpec, StepError};

#[derive(Debug, Error)]
pub enum ReleaseError {
    #[error(transparent)]
    PowerOff(#[from] PowerOffError),
    #[error("processes of the machine do not end: {pids:?}")]
    StillRunning { pids: Vec<u32> },
    #[error("cannot remove {path}")]
    Remove {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

pub(super) async fn release(driver: &LocalDriver, spec: &MachineSpec) -> Result<(), ReleaseError> {
    let dir = driver.dir(&spec.node);
    let ended = power_off(&driver.slot(&spec.node), &dir, &spec.node).await?;
    if !ended.all() {
        return Err(ReleaseError::StillRunning { pids: ended.left });
    }
    let path = dir.path().to_owned();
    let removed = tokio::task::spawn_blocking(move || dir.remove()).await.map_err(io::Error::other).flatten();
    removed.map_err(|source| ReleaseError::Remove { path, source })?;
    locked(&driver.addresses).remove(&spec.node);
    Ok(())
}

impl From<ReleaseError> for StepError {
    fn from(error: ReleaseError) -> Self {
        let passes = match &error {
            ReleaseError::PowerOff(_) | ReleaseError::StillRunning { .. } => true,
            ReleaseError::Remove { source, .. } => may_pass(source),
        };
        step_error(error, passes)
    }
}
