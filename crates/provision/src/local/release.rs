//! Releasing: the machine is switched off, and all that is on it is removed.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use muster_core::names::{EnvName, NodeName};

use super::machine_dir::{MachineDir, ReadMachineError};
use super::open::machine_dirs;
use super::power_off::{PowerOffError, power_off};
use super::{LocalDriver, locked, may_pass, step_error};
use crate::driver::StepError;

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

/// Why the machines that nobody wants any more are not all gone.
#[derive(Debug, Error)]
pub enum ReleaseOthersError {
    #[error("cannot look for machines in {path}")]
    Look {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Machine(#[from] ReadMachineError),
    #[error("{node} is not in the design any more, and its machine cannot be released")]
    Release {
        node: NodeName,
        #[source]
        source: ReleaseError,
    },
}

impl LocalDriver {
    /// Releases the machines of an environment whose nodes are not known (neither wanted nor leaving), and gives the nodes.
    ///
    /// It goes by what is in the state directory, so it does not matter when a node left the design, nor whether
    /// anybody was there to see it. What has no owner written down was cut off half way, and goes as well; machines of
    /// other environments are not touched.
    pub async fn release_others(
        &self,
        env: &EnvName,
        known: &BTreeSet<NodeName>,
    ) -> Result<Vec<NodeName>, ReleaseOthersError> {
        let look = |source| ReleaseOthersError::Look { path: self.nodes.clone(), source };
        let mut released = Vec::new();
        for node in machine_dirs(&self.nodes).map_err(look)?.iter().filter_map(MachineDir::node) {
            let owner = self.dir(&node).read()?.map(|machine| machine.env);
            if known.contains(&node) || owner.is_some_and(|owner| owner != *env) {
                continue;
            }
            match release(self, &node).await {
                Ok(()) => released.push(node),
                Err(source) => return Err(ReleaseOthersError::Release { node, source }),
            }
        }
        released.sort();
        Ok(released)
    }
}

pub(super) async fn release(driver: &LocalDriver, node: &NodeName) -> Result<(), ReleaseError> {
    let dir = driver.dir(node);
    let ended = power_off(&driver.slot(node), &dir, node).await?;
    if !ended.is_complete() {
        return Err(ReleaseError::StillRunning { pids: ended.remaining });
    }
    let path = dir.path().to_owned();
    let removed = tokio::task::spawn_blocking(move || dir.remove()).await.map_err(io::Error::other).flatten();
    removed.map_err(|source| ReleaseError::Remove { path, source })?;
    locked(&driver.addresses).remove(node);
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
