//! The local driver: a machine is a directory and the processes that carry its mark.
//!
//! - Allocating gives it an address of its own and writes them down; deploying makes its directories and the agent's
//!   configuration; booting starts `muster-agent run` and a task that keeps it running; switching off ends every
//!   process of the machine and keeps its directory.
//! - A machine that is up has an agent that this driver has started. One that an earlier driver has left behind (it was
//!   killed) does not count: the machine is seen as off, and booting it ends that agent first. So there are never two.
//!   What else runs on the machine stays, as it would while an agent is being upgraded.
//! - One driver owns a state directory, by a lock that goes with its process. The addresses are its to give.
//!
//! Tasks: one supervisor a machine, all in one set. A supervisor owns its agent's process; the driver owns the rest.

mod addresses;
mod agent_binary;
mod agent_config;
mod agent_log;
mod allocate;
mod boot;
mod deploy;
mod machine_dir;
mod network;
mod open;
mod power_off;
mod program;
mod release;
mod supervisor;

pub use addresses::AddressError;
pub use agent_binary::{AGENT, FindAgentError, find_agent};
pub use agent_config::WriteConfigError;
pub use allocate::AllocateError;
pub use boot::BootError;
pub use deploy::DeployError;
pub use machine_dir::ReadMachineError;
pub use network::{Network, NetworkError};
pub use open::OpenError;
pub use power_off::{PowerOffError, PoweredOff};
pub use program::{MACHINE_MARK, StartError};
pub use release::{ReleaseError, ReleaseOthersError};

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinSet;

use muster_core::names::NodeName;
use muster_core::node::record::MachineStage;
use muster_core::release::manifest::PublicKey;

use crate::driver::{Capabilities, Driver, MachineObservation, MachineSpec, MachineState, ObserveError, StepError};
use addresses::Addresses;
use machine_dir::MachineDir;
use supervisor::{Handle, Status};

/// What the local driver is told.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// Where everything of the machines is kept; made if it is not there.
    pub state: PathBuf,
    pub network: Network,
    /// Where the agents find the server.
    pub server: String,
    /// Whose releases the agents run.
    pub trusted_keys: Vec<PublicKey>,
    /// The agent's program. None: beside the program that runs, or in `PATH`.
    pub agent: Option<PathBuf>,
    /// The `puppet` program. None: what the agent finds.
    pub puppet: Option<PathBuf>,
}

/// Machines that are processes of this machine.
#[derive(Debug)]
pub struct LocalDriver {
    nodes: PathBuf,
    network: Network,
    server: String,
    trusted_keys: Vec<PublicKey>,
    agent: PathBuf,
    puppet: Option<PathBuf>,
    addresses: Mutex<Addresses>,
    /// One slot a machine that was asked for. Its lock keeps two steps of one machine apart.
    machines: Mutex<BTreeMap<NodeName, Slot>>,
    supervisors: Mutex<JoinSet<()>>,
    changes: watch::Sender<u64>,
    shutting_down: AtomicBool,
    /// Held for as long as the driver lives.
    _lock: File,
}

/// None: the machine is not up.
type Slot = Arc<tokio::sync::Mutex<Option<Handle>>>;

impl LocalDriver {
    fn dir(&self, node: &NodeName) -> MachineDir {
        MachineDir::new(&self.nodes, node)
    }

    fn slot(&self, node: &NodeName) -> Slot {
        locked(&self.machines).entry(node.clone()).or_default().clone()
    }

    fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::SeqCst)
    }

    async fn look(&self, spec: &MachineSpec) -> Result<MachineState, ReadMachineError> {
        // To be seen off would be a reason to switch it on again, or to record that this has failed.
        if self.is_shutting_down() {
            return Ok(MachineState::Unknown { cause: "the machines are being switched off".into() });
        }
        let dir = self.dir(&spec.node);
        let Some(machine) = dir.read()? else {
            // Its file goes first when a machine is released, and comes first when one is made.
            let during = MachineStage::Releasing;
            let remains = || MachineState::Broken { during, cause: "what was on it has not all been removed".into() };
            return Ok(if dir.path().exists() { remains() } else { MachineState::Absent });
        };
        let is_wished = || spec.leaving || locked(&self.addresses).kept(spec, &self.network).is_some();
        if machine.env != spec.env || !is_wished() {
            return Ok(MachineState::Absent);
        }
        if !dir.is_deployed() {
            return Ok(MachineState::Allocated);
        }
        let slot = self.slot(&spec.node);
        let handle = slot.lock().await;
        Ok(match handle.as_ref() {
            None => MachineState::Off,
            Some(handle) => seen(handle),
        })
    }
}

fn seen(handle: &Handle) -> MachineState {
    let during = MachineStage::Booting;
    let status = handle.status.borrow().clone();
    match status {
        Status::Down => MachineState::Off,
        Status::EndsAtOnce { cause } => MachineState::Broken { during, cause },
        // Nobody can be up whom nobody supervises.
        Status::Up if handle.status.has_changed().is_err() => MachineState::Broken {
            during,
            cause: "its supervisor is gone, which is a fault of Muster: see its log".into(),
        },
        Status::Up => MachineState::Running,
    }
}

impl Driver for LocalDriver {
    fn name(&self) -> &'static str {
        "local"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { machine: "a directory and its processes", replaceable: true, tells_changes: true }
    }

    fn observe<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<MachineObservation, ObserveError>> {
        async move {
            let log = Some(self.dir(&spec.node).agent_log().display().to_string());
            match self.look(spec).await {
                Ok(state) => Ok(MachineObservation { state, log }),
                Err(error) => Err(ObserveError { node: spec.node.clone(), source: error.into() }),
            }
        }
        .boxed()
    }

    fn allocate<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        async move { Ok(allocate::allocate(self, spec).await?) }.boxed()
    }

    fn deploy<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        async move { Ok(deploy::deploy(self, spec).await?) }.boxed()
    }

    fn boot<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        async move { Ok(boot::boot(self, spec).await?) }.boxed()
    }

    fn release<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        async move { Ok(release::release(self, &spec.node).await?) }.boxed()
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.changes.subscribe())
    }
}

/// What a lock guards here is whole after each statement: a panic elsewhere leaves nothing half done.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether to try the same again may help: a disk that is full now may have room later, a path that is wrong stays so.
fn may_pass(error: &io::Error) -> bool {
    !matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidFilename
    )
}

/// As an error of a step, final unless it may pass.
fn step_error(error: impl std::error::Error + Send + Sync + 'static, may_pass: bool) -> StepError {
    if may_pass { StepError::transient(error) } else { StepError::lasting(error) }
}
