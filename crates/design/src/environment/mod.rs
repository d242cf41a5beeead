//! The environment file: one fleet, by its roles.
//!
//! ```yaml
//! # environments/prod.yaml
//! version: 1              # of the format; may be left out
//! stack: blue             # suffix of every node's name: web1_blue; may be left out
//! cloud: north            # environments/north.map.yaml says what the flavors are there; may be left out
//! roles:                  # nodes are numbered from 1 within their role
//!   db:
//!     cardinality: 1      # how many; 0 is none for now
//!     flavor: large       # what machine it needs
//!   web:
//!     cardinality: 2
//!     flavor: small
//!     profile: frontend   # may be left out, as may the rest
//!     labels: {tier: edge}
//!     failure_domain: rack1
//!     after: [db]         # is meant to come after these
//! rollout:                # how a new version goes through the fleet; may be left out: see `strategy`
//!   max_unavailable: 1
//! ```

pub(crate) mod expect;
mod file;
mod order;
mod role;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use muster_core::names::{EnvName, NodeName, Role, Stack};
use muster_core::rollout::strategy::Strategy;
use serde::Serialize;

use crate::file_text::FileText;
use crate::finding::{Accepted, Findings, Report};
use crate::span::Span;
use crate::yaml::{Entry, Limits, Node};

pub(crate) use file::MOST_NODES;

/// The label that says what a node fails together with.
pub const FAILURE_DOMAIN: &str = "failure_domain";

/// One fleet as it is written down. Whatever is in here is legal and consistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    pub name: EnvName,
    pub stack: Option<Stack>,
    /// The cloud whose map file says what the flavors are there.
    pub cloud: Option<Cloud>,
    /// In the order of the file.
    pub roles: Vec<RoleDesign>,
    /// How it wants to be moved from one version to the next. None: by the default.
    pub rollout: Option<Strategy>,
    /// Indexes into `roles`, each behind those that it comes after.
    start_order: Vec<usize>,
    /// Where the label stands that the budget of a rollout is counted by.
    pub(crate) label: Option<Span>,
}

/// A cloud that an environment is in, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cloud {
    pub name: String,
    pub span: Span,
}

/// A role of an environment: what all of its nodes have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleDesign {
    pub role: Role,
    /// Its nodes, by number: as many as its cardinality says.
    pub nodes: Vec<NodeName>,
    pub flavor: String,
    pub profile: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub failure_domain: Option<String>,
    pub after: Vec<Role>,
    /// The role as it is written, for those who want to know where.
    pub(crate) written: Entry,
}

/// A node that should be there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DesignedNode {
    pub name: NodeName,
    pub role: Role,
    pub flavor: String,
    pub profile: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub failure_domain: Option<String>,
}

impl Environment {
    /// Reads an environment file; the file's name without `.yaml` is the environment's.
    pub fn read(path: &Path) -> Result<Accepted<Environment>, Findings> {
        Environment::parse(&FileText::read(path, Limits::HANDWRITTEN.file_bytes)?)
    }

    /// Checks the text of an environment file: either it holds together, or every reason why not is named.
    pub fn parse(source: &FileText) -> Result<Accepted<Environment>, Findings> {
        file::parse(source)
    }

    /// The same for a file that has been read already; none only after it was reported why.
    pub(crate) fn from_trees(source: &FileText, trees: &[Node], report: &mut Report<'_>) -> Option<Environment> {
        file::from_trees(source, trees, report)
    }

    /// Gives a role another number of nodes than the file says. False if there is no such role, or if it cannot have so
    /// many.
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
        self.roles.iter().flat_map(RoleDesign::designed).collect()
    }

    /// The roles that each role comes after, as written: those that they come after themselves are not among them.
    pub fn after(&self) -> BTreeMap<Role, BTreeSet<Role>> {
        self.roles.iter().map(|design| (design.role.clone(), design.after.iter().cloned().collect())).collect()
    }

    /// The roles in an order to bring them up in: each behind those it comes after, else in the order of the file.
    pub fn in_start_order(&self) -> impl Iterator<Item = &RoleDesign> {
        self.start_order.iter().filter_map(|&index| self.roles.get(index))
    }
}

impl RoleDesign {
    /// How many nodes the role has.
    pub fn cardinality(&self) -> usize {
        self.nodes.len()
    }

    /// What the role's nodes fail together with, if it is said.
    pub fn failure_domain(&self) -> Option<&str> {
        self.failure_domain.as_deref().or_else(|| self.labels.get(FAILURE_DOMAIN).map(String::as_str))
    }

    fn designed(&self) -> impl Iterator<Item = DesignedNode> {
        self.nodes.iter().map(|name| DesignedNode {
            name: name.clone(),
            role: self.role.clone(),
            flavor: self.flavor.clone(),
            profile: self.profile.clone(),
            labels: self.labels.clone(),
            failure_domain: self.failure_domain().map(str::to_owned),
        })
    }
}
