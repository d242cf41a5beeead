//! The driver trait: allocates, installs, boots and releases the machines of one platform. Drivers make no decisions.
//!
//! Steps are idempotent: a step whose result is already there succeeds. A step returns when it was accepted. For a process
//! that is when it runs, for hardware long before the machine is up; [`Driver::observe`] returns the progress. The caller
//! may crash between any two calls and continues from the observed state.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::net::IpAddr;

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::sync::watch;

use muster_core::names::{EnvName, NodeName, Role};
use muster_core::node::record::{MachineStage, NodeRecord};

/// The machine that a node needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSpec {
    pub env: EnvName,
    pub node: NodeName,
    pub role: Role,
    /// Position of the node in the design.
    pub position: u32,
    /// Flavor in the design. A driver with one kind of machine accepts any.
    pub flavor: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// Required interfaces. Empty: the driver's default.
    pub interfaces: Vec<InterfaceRequest>,
    /// The node is being decommissioned: its machine counts also if it does not match this spec.
    pub leaving: bool,
}

impl MachineSpec {
    /// The machine for a node of the design.
    pub fn for_node(env: &EnvName, node: &NodeName, record: &NodeRecord) -> Self {
        Self {
            env: env.clone(),
            node: node.clone(),
            role: record.role.clone(),
            position: record.position,
            flavor: record.flavor.clone(),
            labels: record.labels.clone(),
            interfaces: Vec::new(),
            leaving: record.is_leaving(),
        }
    }
}

/// A required interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceRequest {
    pub name: String,
    /// `None`: any free address.
    pub address: Option<IpAddr>,
}

/// State of a machine according to its controller (a process table, a hypervisor, MAAS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// There is no machine for the node.
    Absent,
    /// Allocated, with nothing installed.
    Allocated,
    /// Installed and powered off.
    Off,
    Running,
    /// An accepted step is in progress.
    Underway {
        stage: MachineStage,
    },
    /// An accepted step failed, or the machine does not stay up. Repeating the step may repair it.
    Broken {
        during: MachineStage,
        cause: String,
    },
    /// The machine's controller is unreachable. The state of the machine is unknown.
    Unknown {
        cause: String,
    },
}

/// Observed state of a machine, and where its log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineObservation {
    pub state: MachineState,
    /// Path of a log or address of a console.
    pub log: Option<String>,
}

/// Reason that a step was refused.
#[derive(Debug, Error)]
pub enum StepError {
    /// A retry may succeed.
    #[error("the machine's controller failed, and a retry may succeed")]
    Transient(#[source] Box<dyn Error + Send + Sync>),
    /// A retry fails in the same way until an operator changes something.
    #[error("the machine's controller refuses the step")]
    Final(#[source] Box<dyn Error + Send + Sync>),
}

impl StepError {
    pub fn transient(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        StepError::Transient(cause.into())
    }

    pub fn permanent(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        StepError::Final(cause.into())
    }

    /// The causes in one line, for a record.
    pub fn cause(&self) -> String {
        let (StepError::Transient(cause) | StepError::Final(cause)) = self;
        in_one_line(cause.as_ref())
    }
}

/// An error and its sources in one line, for a record or a log.
pub(crate) fn in_one_line(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The machine's controller could not be queried.
#[derive(Debug, Error)]
#[error("cannot observe the machine of {node}")]
pub struct ObserveError {
    pub node: NodeName,
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

impl ObserveError {
    pub(crate) fn cause(&self) -> String {
        in_one_line(self)
    }
}

/// Properties of a driver's machines, for operators and planners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Description of a machine.
    pub machine: &'static str,
    /// A lost machine may be replaced automatically: everything on it can be created again.
    pub replaceable: bool,
    /// [`Driver::changes`] reports every change, so that no polling is needed.
    pub reports_changes: bool,
}

/// A driver of machines.
///
/// Steps of different machines may run concurrently. The driver runs the steps of one machine one at a time.
pub trait Driver: Send + Sync + fmt::Debug {
    /// Name of the driver in machine records.
    fn name(&self) -> &'static str;

    fn capabilities(&self) -> Capabilities;

    /// Observes the machine. Changes nothing.
    fn observe<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<MachineObservation, ObserveError>>;

    /// Allocates a machine for the node.
    fn allocate<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>>;

    /// Installs what the machine needs to start an agent.
    fn deploy<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>>;

    /// Powers the machine on. Leftovers of an earlier boot do not matter.
    fn boot<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>>;

    /// Powers the machine off and releases it with everything on it.
    fn release<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>>;

    /// Changes when the state of a machine may have changed other than by a step. A hint, as a watch is.
    fn changes(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}
