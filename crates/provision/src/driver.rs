//! What a driver is: the one thing that touches machines. It decides nothing.
//!
//! A step is idempotent: to ask for what is there already is a success. It returns when it was accepted, which for a
//! process is when it runs, and for hardware long before the machine is up; [`Driver::observe`] tells how far it is. So
//! whoever calls may crash between any two calls, and goes on from what is seen.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::net::IpAddr;

use futures::future::BoxFuture;
use thiserror::Error;
use tokio::sync::watch;

use muster_core::names::{EnvName, NodeName, Role};
use muster_core::node::record::{MachineStage, NodeRecord};

/// What kind of machine is wanted for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSpec {
    pub env: EnvName,
    pub node: NodeName,
    pub role: Role,
    /// Its place in the design.
    pub position: u32,
    /// What machine it needs, in the design's words. A driver that has one kind only takes any.
    pub flavor: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// The interfaces that it must have. Empty: what the driver gives a machine by default.
    pub interfaces: Vec<InterfaceRequest>,
    /// The node leaves: whatever there is of its machine counts, also if it is not what was wished for.
    pub leaving: bool,
}

impl MachineSpec {
    /// The machine for a node of the design.
    pub fn of(env: &EnvName, node: &NodeName, record: &NodeRecord) -> Self {
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

/// An interface that a machine must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceRequest {
    pub name: String,
    /// None: any that is free.
    pub address: Option<IpAddr>,
}

/// How far a machine is, as its controller (a process table, a hypervisor, MAAS) tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// There is no machine for the node.
    Absent,
    /// There is one, and nothing is installed on it.
    Allocated,
    /// It is installed, and switched off.
    Off,
    Running,
    /// A step that was accepted has not ended yet.
    Underway {
        stage: MachineStage,
    },
    /// A step that was accepted did not end well, or what ran does not stay up. To repeat the step mends it, or tries to.
    Broken {
        during: MachineStage,
        cause: String,
    },
    /// The machine's controller could not be asked. Says nothing about the machine.
    Unknown {
        cause: String,
    },
}

/// A machine as it was seen, and where a person finds out more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineObservation {
    pub state: MachineState,
    /// What the machine says of itself: the path of a log, the address of a console.
    pub log: Option<String>,
}

/// Why a step was not accepted.
#[derive(Debug, Error)]
pub enum StepError {
    /// It may go better later, with nobody doing anything.
    #[error("the machine's controller did not do it this time")]
    Transient(#[source] Box<dyn Error + Send + Sync>),
    /// It will not go better until somebody changes something.
    #[error("the machine's controller refuses to do it")]
    Final(#[source] Box<dyn Error + Send + Sync>),
}

impl StepError {
    pub fn transient(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        StepError::Transient(cause.into())
    }

    pub fn lasting(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        StepError::Final(cause.into())
    }

    /// What happened and why, in one line for a record: the chain of causes, without saying that it is one.
    pub fn cause(&self) -> String {
        let (StepError::Transient(cause) | StepError::Final(cause)) = self;
        in_one_line(cause.as_ref())
    }
}

/// An error with all of its causes, for a record or a line of a log.
pub(crate) fn in_one_line(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| (*error).source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The machine's controller could not be asked.
#[derive(Debug, Error)]
#[error("cannot find out how the machine of {node} is")]
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

/// What a driver's machines can do: for people who choose one, and for planners that must not ask for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// What a machine is, in a few words.
    pub machine: &'static str,
    /// A machine that has vanished may be replaced by a new one without asking: what was on it can be made again.
    pub replaceable: bool,
    /// [`Driver::changes`] tells of every change, so nobody has to look from time to time.
    pub tells_changes: bool,
}

/// The only thing that touches machines.
///
/// Steps of different machines may run at the same time; of one machine, one at a time (a driver sees to it).
pub trait Driver: Send + Sync + fmt::Debug {
    /// As it stands in the machines' records.
    fn name(&self) -> &'static str;

    fn capabilities(&self) -> Capabilities;

    /// How far the machine is. Changes nothing.
    fn observe<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<MachineObservation, ObserveError>>;

    /// Makes a machine the node's own.
    fn allocate<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>>;

    /// Puts on it what it needs to start with an agent.
    fn deploy<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>>;

    /// Switches it on. What an earlier start has left behind does not matter.
    fn boot<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>>;

    /// Switches it off and gives it back, with all that is on it.
    fn release<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), StepError>>;

    /// Changes whenever a machine may be seen differently than before, other than by a step. A hint, as watches are.
    fn changes(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}
