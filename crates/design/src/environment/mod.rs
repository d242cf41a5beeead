//! Environment files: the roles of one fleet.
//!
//! ```yaml
//! # environments/prod.yaml
//! version: 1              # of the format; optional
//! stack: blue             # suffix of every node's name: web1_blue; optional
//! cloud: north            # environments/north.map.yaml maps the flavors; optional
//! hosts:                  # host names; optional. Default: the node's name with `-` for `_`
//!   pattern: "{role}{num:02}.example.org"
//!   db1: oracle.example.org
//! roles:                  # nodes are numbered from 1 within their role
//!   db:
//!     cardinality: 1      # number of nodes; may be 0
//!     flavor: large       # size of machine
//!   web:
//!     cardinality: 2
//!     flavor: small
//!     profile: frontend   # optional, like the rest
//!     labels: {tier: edge}
//!     failure_domain: rack1
//!     after: [db]         # start order: after these roles
//! rollout:                # rollout strategy; optional: see `strategy`
//!   max_unavailable: 1
//! ```

pub(crate) mod expect;
mod file;
mod hosts;
mod role;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use muster_core::names::{EnvName, NodeName, Role, Stack};
use muster_core::rollout::strategy::Strategy;
use serde::Serialize;

use crate::file_text::{FileText, Span};
use crate::finding::{FindingCollector, Findings, WithWarnings};
use crate::yaml::{Limits, YamlEntry, YamlNode};
use hosts::HostNames;

pub(crate) use file::MAX_NODES;

/// Label with the failure domain of a node.
pub const FAILURE_DOMAIN: &str = "failure_domain";

/// A valid environment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    pub name: EnvName,
    pub stack: Option<Stack>,
    /// Cloud whose map file translates the flavors.
    pub cloud: Option<Cloud>,
    /// In the order of the file.
    pub roles: Vec<RoleDesign>,
    hosts: HostNames,
    /// Rollout strategy; none for the default.
    pub rollout: Option<Strategy>,
    /// Indices into `roles` in start order.
    start_order: Vec<usize>,
    /// Span of the label that the rollout budget is counted by.
    pub(crate) label: Option<Span>,
}

/// A cloud that an environment is in, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cloud {
    pub name: String,
    pub span: Span,
}

/// A role of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleDesign {
    pub role: Role,
    /// Its nodes, by number.
    pub nodes: Vec<NodeName>,
    pub flavor: String,
    pub profile: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub failure_domain: Option<String>,
    pub after: Vec<Role>,
    /// The role as written, for spans.
    pub(crate) written: YamlEntry,
}

/// A node that an environment file defines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DesignedNode {
    pub name: NodeName,
    pub role: Role,
    pub flavor: String,
    pub profile: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub failure_domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_name: Option<String>,
}

impl Environment {
    /// Reads an environment file. The name of the environment is the file name without `.yaml`.
    pub fn read(path: &Path) -> Result<WithWarnings<Environment>, Findings> {
        Environment::parse(&FileText::read(path, Limits::HANDWRITTEN.file_bytes)?)
    }

    /// Parses and checks an environment file.
    pub fn parse(source: &FileText) -> Result<WithWarnings<Environment>, Findings> {
        file::parse(source)
    }

    /// Checks parsed trees; returns none only after reporting a finding.
    pub(crate) fn from_trees(
        source: &FileText,
        trees: &[YamlNode],
        report: &mut FindingCollector<'_>,
    ) -> Option<Environment> {
        file::from_trees(source, trees, report)
    }

    /// Overrides the cardinality of a role; false if the role does not exist or the number is out of range.
    pub fn set_cardinality(&mut self, role: &Role, cardinality: u32) -> bool {
        let (stack, nodes) = (self.stack.clone(), self.roles.iter().map(RoleDesign::cardinality).sum::<usize>());
        let Some(design) = self.roles.iter_mut().find(|design| design.role == *role) else { return false };
        let others = nodes - design.cardinality();
        match role::names(role, cardinality, stack.as_ref(), others) {
            Some(names) => design.nodes = names,
            None => return false,
        }
        true
    }

    /// All nodes: by role in the order of the file, then by number.
    pub fn nodes(&self) -> Vec<DesignedNode> {
        self.roles.iter().flat_map(|role| role.nodes.iter().map(|name| self.designed(role, name))).collect()
    }

    fn designed(&self, role: &RoleDesign, name: &NodeName) -> DesignedNode {
        DesignedNode {
            name: name.clone(),
            role: role.role.clone(),
            flavor: role.flavor.clone(),
            profile: role.profile.clone(),
            labels: role.labels.clone(),
            failure_domain: role.failure_domain().map(str::to_owned),
            host_name: self.host_name(name).and_then(|given| Some(given.text()?.to_owned())),
        }
    }

    /// Host name that the file sets for a node.
    pub(crate) fn host_name(&self, node: &NodeName) -> Option<YamlNode> {
        self.hosts.of(node, &self.name)
    }

    /// Direct start dependencies of each role.
    pub fn after(&self) -> BTreeMap<Role, BTreeSet<Role>> {
        self.roles.iter().map(|design| (design.role.clone(), design.after.iter().cloned().collect())).collect()
    }

    /// Roles in start order: each after its dependencies, otherwise in the order of the file.
    pub fn in_start_order(&self) -> impl Iterator<Item = &RoleDesign> {
        self.start_order.iter().filter_map(|&index| self.roles.get(index))
    }
}

impl RoleDesign {
    pub fn cardinality(&self) -> usize {
        self.nodes.len()
    }

    /// Failure domain of the role's nodes.
    pub fn failure_domain(&self) -> Option<&str> {
        self.failure_domain.as_deref().or_else(|| self.labels.get(FAILURE_DOMAIN).map(String::as_str))
    }
}
