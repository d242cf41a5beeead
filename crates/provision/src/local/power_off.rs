//! Switching machines off: every process of theirs is ended, and their directories are kept.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use thiserror::Error;

use muster_core::names::NodeName;
use muster_marked::{TerminationSummary, terminate_all};

use super::machine_dir::MachineDir;
use super::open::machine_dirs;
use super::program::{MACHINE_MARK, end_agents};
use super::{LocalDriver, Slot};

/// How long what runs on a machine may take to end by itself, once its agent has ended.
const GRACE: Duration = Duration::from_secs(5);

/// So many machines are switched off at a time. Each looks through all processes of this machine several times.
const AT_A_TIME: usize = 8;

/// A machine that was switched off.
#[derive(Debug)]
pub struct PoweredOff {
    pub node: NodeName,
    /// What became of the processes that were left when its agent had ended.
    pub result: Result<TerminationSummary, PowerOffError>,
}

#[derive(Debug, Error)]
#[error(
    "cannot end the processes of {node}: those with {MACHINE_MARK}={path} in their environment are still to be ended"
)]
pub struct PowerOffError {
    node: NodeName,
    path: String,
    #[source]
    source: io::Error,
}

impl LocalDriver {
    /// Switches off every machine of the state directory, also those that this driver has not started. None is started
    /// any more. Ends in bounded time: at the latest a minute for every eight machines, which is when all of their
    /// processes hang.
    pub async fn shutdown(&self) -> io::Result<Vec<PoweredOff>> {
        self.shutting_down.store(true, Ordering::SeqCst);
        let nodes = machine_dirs(&self.nodes)?.into_iter().filter_map(|dir| dir.node());
        let machines = nodes.map(|node| async move {
            let slot = self.slot(&node);
            let result = power_off(&slot, &self.dir(&node), &node).await;
            PoweredOff { node, result }
        });
        Ok(futures::stream::iter(machines).buffer_unordered(AT_A_TIME).collect().await)
    }
}

/// The agent first, so that it can end cleanly and starts nothing more; then all others.
pub(super) async fn power_off(
    slot: &Slot,
    dir: &MachineDir,
    node: &NodeName,
) -> Result<TerminationSummary, PowerOffError> {
    let failed = |source| PowerOffError { node: node.clone(), path: dir.path().display().to_string(), source };
    let mut handle = slot.lock().await;
    if let Some(up) = handle.as_mut() {
        up.stop().await;
    }
    *handle = None;
    end_agents(dir).await.map_err(failed)?;
    terminate_all(MACHINE_MARK, dir.path(), GRACE).await.map_err(failed)
}
