//! The environment file: one fleet, by its roles.
//!
//! ```yaml
//! # environments/prod.yaml
//! version: 1              # of the format; may be left out
//! stack: blue             # suffix of every node's name: web1_blue; may be left out
//! roles:                  # nodes are numbered from 1 within their role
//!   db:
//!     cardinality: 1      # how many; 0 is none for now
//!     flavor: large       # what machine it needs
//!   web:
//!     cardinality: 2
//!     flavor: small
//!     profile: frontend   # may be left out, as may the rest
//!     labels: {failure_domain: rack1, tier: edge}
//!     after: [db]         # is meant to come after these
//! ```

mod expect;
mod file;
mod order;
mod role;

use std::collections::BTreeMap;
use std::path::Path;

use muster_core::names::{EnvName, NodeName, Role, Stack};
use serde::Serialize;

use crate::finding::{Accepted, Findings};
use crate::source::Source;
use crate::yaml::Limits;

/// The label that says what a node fails together with.
pub const FAILURE_DOMAIN: &str = "failure_domain";

/// One fleet as it is written down. Whatever is in here is legal and consistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    pub name: EnvName,
    pub stack: Option<Stack>,
    /// In the order of the file.
    pub roles: Vec<RoleDesign>,
    /// Indexes into `roles`, each behind those that it comes after.
    start_order: Vec<usize>,
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
    pub after: Vec<Role>,
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
        Environment::parse(&Source::read(path, Limits::HANDWRITTEN.file_bytes)?)
    }

    /// Checks the text of an environment file: either it holds together, or every reason why not is named.
    pub fn parse(source: &Source) -> Result<Accepted<Environment>, Findings> {
        file::parse(source)
    }

    /// All nodes: by role in the order of the file, then by number.
    pub fn nodes(&self) -> Vec<DesignedNode> {
        self.roles.iter().flat_map(RoleDesign::designed).collect()
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
        self.labels.get(FAILURE_DOMAIN).map(String::as_str)
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
