//! How an environment wants to be moved.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::design::DesignRevision;
use muster_core::names::Role;
use muster_core::rollout::strategy::{GateCheck, GateCheckKind, Strategy};

use super::begin::BeginRefused;

/// What the applied design of an environment says of it. Without one there is no order, and no strategy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// None if the environment's file says nothing of it.
    pub strategy: Option<Strategy>,
    /// Which roles each role comes after.
    pub after: BTreeMap<Role, BTreeSet<Role>>,
    /// The revision that says so.
    pub design: Option<DesignRevision>,
}

/// The server runs the commands of a gate, with its rights. So only those are run that the environment's own file holds,
/// which is looked at before it is applied: not whatever somebody sends along who can reach the API.
pub fn own_commands(strategy: &Strategy, way: &Way) -> Result<(), BeginRefused> {
    let own = || way.strategy.iter().flat_map(|own| &own.gate.checks);
    let is_own = |check: &GateCheck| match &check.kind {
        GateCheckKind::Http(_) => true,
        GateCheckKind::Command(_) => own().any(|own| own.kind == check.kind),
    };
    match strategy.gate.checks.iter().find(|check| !is_own(check)) {
        Some(foreign) => Err(BeginRefused::ForeignCommand { check: foreign.name.clone() }),
        None => Ok(()),
    }
}
