//! Powers off machines, which keeps their directories, and releases them, which removes everything.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use thiserror::Error;

use muster_core::names::{EnvName, NodeName};
use muster_marked::{TerminationSummary, terminate_all};

use super::agent_process::{MACHINE_MARK, end_agents};
use super::machine_dir::{MachineDir, ReadMachineError};
use super::{LocalDriver, MachineSlot, OpenDriverError, is_transient, lock_nodes, locked, machine_dirs, step_error};
use crate::driver::StepError;

/// Time between SIGTERM and SIGKILL for the processes of a machine, after its agent has ended.
const GRACE: Duration = Duration::from_secs(5);

/// Number of machines that are powered off concurrently. Each searches all processes of this machine several times.
const CONCURRENCY: usize = 8;

/// Result of powering off one machine.
#[derive(Debug)]
pub struct PowerOffResult {
    pub node: NodeName,
    /// Outcome of ending the remaining processes.
    pub result: Result<TerminationSummary, PowerOffError>,
}

#[derive(Debug, Error)]
#[error("cannot end the processes of {node}: end those with {MACHINE_MARK}={path} in their environment")]
pub struct PowerOffError {
    node: NodeName,
    path: String,
    #[source]
    source: io::Error,
}

impl LocalDriver {
    /// Powers off every machine of the state directory, also those that this driver has not started. No machine is started
    /// any more. Takes at most a minute for every eight machines, if all their processes hang.
    pub async fn shutdown(&self) -> io::Result<Vec<PowerOffResult>> {
        self.shutting_down.store(true, Ordering::SeqCst);
        let nodes = machine_dirs(&self.nodes)?.into_iter().filter_map(|dir| dir.node());
        let machines = nodes.map(|node| async move {
            let slot = self.slot(&node);
            let result = power_off(&slot, &self.dir(&node), &node).await;
            PowerOffResult { node, result }
        });
        Ok(futures::stream::iter(machines).buffer_unordered(CONCURRENCY).collect().await)
    }
}

/// Powers off every machine of a state directory without a driver, such as those of a driver that was killed.
pub async fn power_off_all(state: &Path) -> Result<Vec<PowerOffResult>, OpenDriverError> {
    let (nodes, _lock) = lock_nodes(state)?;
    let dirs = machine_dirs(&nodes).map_err(|source| OpenDriverError::State { path: nodes.clone(), source })?;
    let machines = dirs.into_iter().filter_map(|dir| Some((dir.node()?, dir))).map(|(node, dir)| async move {
        let result = power_off(&MachineSlot::default(), &dir, &node).await;
        PowerOffResult { node, result }
    });
    Ok(futures::stream::iter(machines).buffer_unordered(CONCURRENCY).collect().await)
}

/// Process id of the running driver of a state directory, if there is one.
pub fn running_owner(state: &Path) -> Result<Option<i32>, OpenDriverError> {
    match lock_nodes(state) {
        Err(OpenDriverError::InUse { pid: Some(pid), .. }) => Ok(Some(pid)),
        Err(error) => Err(error),
        Ok(_) => Ok(None),
    }
}

/// Ends the agent first, so that it stops cleanly and starts nothing more, then all other processes.
pub(super) async fn power_off(
    slot: &MachineSlot,
    dir: &MachineDir,
    node: &NodeName,
) -> Result<TerminationSummary, PowerOffError> {
    let failed = |source| PowerOffError { node: node.clone(), path: dir.path().display().to_string(), source };
    let mut handle = slot.lock().await;
    if let Some(up) = handle.as_mut() {
        up.stop().await;
    }
    *handle = None;
    let agents = end_agents(dir).await.map_err(failed)?;
    let mut ended = terminate_all(MACHINE_MARK, dir.path(), GRACE).await.map_err(failed)?;
    ended.terminated.extend(agents.into_iter().filter(|agent| !ended.killed.contains(agent)));
    Ok(ended)
}

#[derive(Debug, Error)]
pub enum ReleaseError {
    #[error(transparent)]
    PowerOff(#[from] PowerOffError),
    #[error("processes of the machine do not end after SIGKILL: {pids:?}")]
    StillRunning { pids: Vec<u32> },
    #[error("cannot remove {path}")]
    Remove {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Reason that the machines of removed nodes were not all released.
#[derive(Debug, Error)]
pub enum ReleaseOthersError {
    #[error("cannot list the machines in {path}")]
    List {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Machine(#[from] ReadMachineError),
    #[error("{node} is no longer in the design, but its machine cannot be released")]
    Release {
        node: NodeName,
        #[source]
        source: ReleaseError,
    },
}

impl LocalDriver {
    /// Releases the machines of an environment whose nodes are not in `known`, and returns those nodes.
    ///
    /// It lists the state directory, so it also finds nodes that left the design while no driver ran. Directories without a
    /// machine file are incomplete and removed as well. Machines of other environments are not touched.
    pub async fn release_others(
        &self,
        env: &EnvName,
        known: &BTreeSet<NodeName>,
    ) -> Result<Vec<NodeName>, ReleaseOthersError> {
        let failed = |source| ReleaseOthersError::List { path: self.nodes.clone(), source };
        let mut released = Vec::new();
        for node in machine_dirs(&self.nodes).map_err(failed)?.iter().filter_map(MachineDir::node) {
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
        let transient = match &error {
            ReleaseError::PowerOff(_) | ReleaseError::StillRunning { .. } => true,
            ReleaseError::Remove { source, .. } => is_transient(source),
        };
        step_error(error, transient)
    }
}
