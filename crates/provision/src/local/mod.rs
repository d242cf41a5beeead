//! The local driver: a machine is a directory and the processes that carry its mark.
//!
//! - `allocate` assigns and stores its addresses. `deploy` creates its directories and the agent's configuration. `boot`
//!   starts `muster-agent run` and a task that restarts it. Powering off ends all processes and keeps the directory.
//! - A running machine has an agent that this driver has started. An agent of an earlier driver that was killed does not
//!   count: the machine is observed as off, and `boot` ends that agent first, so that there are never two. Other processes
//!   of the machine continue, as during an upgrade of the agent.
//! - A lock ensures that one driver owns a state directory. A claim ensures that no other driver uses its addresses.
//!
//! Tasks: one supervisor per machine, all in one set. A supervisor owns its agent's process; the driver owns the rest.

mod addresses;
mod agent_process;
mod listeners;
mod machine_dir;
mod network;
mod network_claim;
mod release;
mod steps;
mod supervisor;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use futures::FutureExt;
use futures::future::BoxFuture;
use muster_core::names::NodeName;
use muster_core::node::record::MachineStage;
use muster_core::release::manifest::PublicKey;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::driver::{Capabilities, Driver, MachineObservation, MachineSpec, MachineState, ObserveError, StepError};

use addresses::Addresses;
use listeners::{Listener, sockets_of};
use machine_dir::{MachineDir, machine_dirs};
use network_claim::NetworkClaim;
use supervisor::{AgentStatus, SupervisorHandle};

pub use addresses::AssignAddressError;
pub use agent_process::{AGENT, FindAgentError, MACHINE_MARK, StartAgentError, find_agent};
pub use machine_dir::ReadMachineError;
pub use network::{LoopbackNetwork, NetworkError};
pub use network_claim::ClaimNetworkError;
pub use release::{PowerOffError, PowerOffResult, ReleaseError, ReleaseOthersError, power_off_all, running_owner};
pub use steps::{AllocateError, BootError, DeployError, WriteConfigError};

/// Configuration of the local driver.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// State directory; created if missing.
    pub state: PathBuf,
    /// Network of the machines. `None`: that of the state directory or, if it is new, a free block of 127.77.0.0/16.
    pub network: Option<LoopbackNetwork>,
    /// URL of the server for the agents, or `unix:/PATH`.
    pub server: String,
    /// File with the token of the server, if the agents need one.
    pub token_file: Option<PathBuf>,
    /// Keys that sign releases.
    pub trusted_keys: Vec<PublicKey>,
    /// The agent's program. `None`: next to the running program, or in `PATH`.
    pub agent: Option<PathBuf>,
    /// The `puppet` program. `None`: the agent's default.
    pub puppet: Option<PathBuf>,
    /// Ports of the nodes' addresses that checks connect to.
    pub check_ports: BTreeSet<u16>,
}

/// Driver of machines that are processes of this machine.
#[derive(Debug)]
pub struct LocalDriver {
    nodes: PathBuf,
    network: LoopbackNetwork,
    server: String,
    token_file: Option<PathBuf>,
    trusted_keys: Vec<PublicKey>,
    agent: PathBuf,
    puppet: Option<PathBuf>,
    addresses: Mutex<Addresses>,
    /// One slot per machine. Its lock serialises the steps of a machine.
    machines: Mutex<BTreeMap<NodeName, MachineSlot>>,
    supervisors: Mutex<JoinSet<()>>,
    changes: watch::Sender<u64>,
    shutting_down: AtomicBool,
    /// Held while the driver exists.
    _lock: File,
    _claim: NetworkClaim,
}

/// Supervisor of a machine; `None`: the machine is off.
type MachineSlot = Arc<tokio::sync::Mutex<Option<SupervisorHandle>>>;

#[derive(Debug, Error)]
pub enum OpenDriverError {
    #[error(transparent)]
    Agent(#[from] FindAgentError),
    #[error("cannot use {path} for machines")]
    State {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the machines in {path} belong to another running muster{}: stop it, or choose another --state",
        pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    InUse { path: PathBuf, pid: Option<i32> },
    #[error(transparent)]
    Machine(#[from] ReadMachineError),
    #[error(transparent)]
    Network(#[from] ClaimNetworkError),
    #[error(
        "{address}:{port} is in use by a process that does not belong to this fleet, and {address} is the address of {node}: \
         end that process, or choose another network with --network"
    )]
    PortInUse { address: Ipv4Addr, port: u16, node: NodeName },
    #[error(
        "a process that does not belong to this fleet listens on port {port} of all addresses, and would answer the checks of \
         releases that use this port: end that process, or change the port"
    )]
    WildcardPortInUse { port: u16 },
}

impl LocalDriver {
    /// Opens a state directory. Agents of an earlier driver are not touched until their machine is booted.
    pub fn open(config: LocalConfig) -> Result<Self, OpenDriverError> {
        let agent = find_agent(config.agent.as_deref())?;
        let (nodes, lock) = lock_nodes(&config.state)?;
        let mut addresses = Addresses::default();
        for dir in machine_dirs(&nodes).map_err(|source| OpenDriverError::State { path: nodes.clone(), source })? {
            if let Some(machine) = dir.read()? {
                addresses.put(&machine);
            }
        }
        let claim = NetworkClaim::open(&config.state, config.network, !addresses.is_empty())?;
        check_ports(&addresses, &claim.network, &nodes)?;
        check_wildcard_ports(&config.check_ports, &addresses, &nodes)?;
        Ok(Self {
            nodes,
            network: claim.network,
            server: config.server,
            token_file: config.token_file,
            trusted_keys: config.trusted_keys,
            agent,
            puppet: config.puppet,
            addresses: Mutex::new(addresses),
            machines: Mutex::default(),
            supervisors: Mutex::new(JoinSet::new()),
            changes: watch::Sender::new(0),
            shutting_down: AtomicBool::new(false),
            _lock: lock,
            _claim: claim,
        })
    }

    /// The network of the machines.
    pub fn network(&self) -> LoopbackNetwork {
        self.network
    }
}

/// Checks that only processes of its machine listen on the address of a machine: another process would answer its checks.
/// Processes of an earlier driver that was killed may still listen.
fn check_ports(addresses: &Addresses, network: &LoopbackNetwork, nodes: &Path) -> Result<(), OpenDriverError> {
    let listeners = Listener::all();
    for (node, address) in addresses.all().filter(|(_, address)| network.contains(*address)) {
        let mut on_address = listeners.iter().filter(|listener| listener.address == address).peekable();
        if on_address.peek().is_none() {
            continue;
        }
        let own = sockets_of(MachineDir::new(nodes, node).path());
        if let Some(Listener { port, .. }) = on_address.find(|listener| !listener.is_among(&own)) {
            return Err(OpenDriverError::PortInUse { address, port: *port, node: node.clone() });
        }
    }
    Ok(())
}

/// Checks that no process of another origin listens on all addresses with a port that checks use.
fn check_wildcard_ports(ports: &BTreeSet<u16>, addresses: &Addresses, nodes: &Path) -> Result<(), OpenDriverError> {
    let mut listeners = Listener::all();
    listeners.retain(|listener| listener.address.is_unspecified() && ports.contains(&listener.port));
    for (node, _) in addresses.all() {
        if listeners.is_empty() {
            return Ok(());
        }
        let own = sockets_of(MachineDir::new(nodes, node).path());
        listeners.retain(|listener| !listener.is_among(&own));
    }
    match listeners.first() {
        Some(Listener { port, .. }) => Err(OpenDriverError::WildcardPortInUse { port: *port }),
        None => Ok(()),
    }
}

/// The canonical path of the machines' directory, which marks their processes, and its lock.
fn lock_nodes(state: &Path) -> Result<(PathBuf, File), OpenDriverError> {
    let failed = |source| OpenDriverError::State { path: state.to_owned(), source };
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
            let read = lock.read_to_string(&mut pid);
            let pid = read.ok().and_then(|_| pid.trim().parse().ok());
            return Err(OpenDriverError::InUse { path: nodes, pid });
        }
    }
    // The pid is for the error above, and for a command that stops this process.
    lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(failed)?;
    Ok((nodes, lock))
}

impl LocalDriver {
    fn dir(&self, node: &NodeName) -> MachineDir {
        MachineDir::new(&self.nodes, node)
    }

    fn slot(&self, node: &NodeName) -> MachineSlot {
        locked(&self.machines).entry(node.clone()).or_default().clone()
    }

    fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::SeqCst)
    }

    async fn state(&self, spec: &MachineSpec) -> Result<MachineState, ReadMachineError> {
        // The state `Off` would lead to a restart, or to a recorded failure.
        if self.is_shutting_down() {
            return Ok(MachineState::Unknown { cause: "the machines are being powered off".into() });
        }
        let dir = self.dir(&spec.node);
        let Some(machine) = dir.read()? else {
            // The machine file is removed first at a release, and written first at an allocation.
            let during = MachineStage::Releasing;
            let remains = || MachineState::Broken { during, cause: "the release of the machine is incomplete".into() };
            return Ok(if dir.path().exists() { remains() } else { MachineState::Absent });
        };
        let matches_spec = || spec.leaving || locked(&self.addresses).matching(spec, &self.network).is_some();
        if machine.env != spec.env || !matches_spec() {
            return Ok(MachineState::Absent);
        }
        if !dir.is_deployed() {
            return Ok(MachineState::Allocated);
        }
        let slot = self.slot(&spec.node);
        let handle = slot.lock().await;
        Ok(match handle.as_ref() {
            None => MachineState::Off,
            Some(handle) => supervised_state(handle),
        })
    }
}

fn supervised_state(handle: &SupervisorHandle) -> MachineState {
    let during = MachineStage::Booting;
    let status = handle.status.borrow().clone();
    match status {
        AgentStatus::Stopped => MachineState::Off,
        AgentStatus::Crashing { cause } => MachineState::Broken { during, cause },
        // The supervisor task has ended unexpectedly.
        AgentStatus::Running if handle.status.has_changed().is_err() => MachineState::Broken {
            during,
            cause: "its supervisor has failed, which is a bug in Muster: see its log".into(),
        },
        AgentStatus::Running => MachineState::Running,
    }
}

impl Driver for LocalDriver {
    fn name(&self) -> &'static str {
        "local"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { machine: "a directory and its processes", replaceable: true, reports_changes: true }
    }

    fn observe<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<MachineObservation, ObserveError>> {
        async move {
            let log = Some(self.dir(&spec.node).agent_log().display().to_string());
            match self.state(spec).await {
                Ok(state) => Ok(MachineObservation { state, log }),
                Err(error) => Err(ObserveError { node: spec.node.clone(), source: error.into() }),
            }
        }
        .boxed()
    }

    fn allocate<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        async move { Ok(steps::allocate(self, spec).await?) }.boxed()
    }

    fn deploy<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        async move { Ok(steps::deploy(self, spec).await?) }.boxed()
    }

    fn boot<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        async move { Ok(steps::boot(self, spec).await?) }.boxed()
    }

    fn release<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>> {
        async move { Ok(release::release(self, &spec.node).await?) }.boxed()
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.changes.subscribe())
    }
}

/// Locks a mutex. The guarded values are consistent after each statement, also after a panic.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if a retry may succeed: a full disk may have room later, a wrong path stays wrong.
fn is_transient(error: &io::Error) -> bool {
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

/// Converts an error to a transient or permanent error of a step.
fn step_error(error: impl std::error::Error + Send + Sync + 'static, transient: bool) -> StepError {
    if transient { StepError::transient(error) } else { StepError::permanent(error) }
}
