//! The simulated fleet: its nodes, and the first keys of its environment.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName, Role, Version};
use muster_core::node::record::NodeRecord;
use muster_core::release::ReleaseRecord;
use muster_core::release::manifest::SignedManifest;
use muster_core::txn::{Op, Txn};

use super::world::START;

/// The roles of a fleet with their number of nodes, and their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Design {
    pub roles: Vec<(Role, u32)>,
    pub after: BTreeMap<Role, BTreeSet<Role>>,
    /// The number of failure domains.
    pub domains: u32,
}

pub(crate) fn role(name: &'static str) -> Role {
    match Role::new(name) {
        Ok(role) => role,
        Err(error) => unreachable!("{error}"),
    }
}

pub(crate) fn version(number: u64) -> Version {
    match Version::new(format!("v{number}")) {
        Ok(version) => version,
        Err(error) => unreachable!("{error}"),
    }
}

/// The failure domain of a role's n-th node.
pub(crate) fn domain_of(design: &Design, number: u32) -> String {
    format!("rack{}", number % design.domains.max(1) + 1)
}

impl Design {
    /// The nodes, each with its role and its number within the role.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeName, Role, u32)> {
        self.roles.iter().flat_map(|(role, count)| {
            (1..=*count).filter_map(|number| Some((NodeName::build(role, number, None).ok()?, role.clone(), number)))
        })
    }
}

pub(crate) fn node_record(design: &Design, role: &Role, number: u32) -> NodeRecord {
    let failure_domain = domain_of(design, number);
    NodeRecord {
        role: role.clone(),
        profile: None,
        labels: BTreeMap::from([("rack".to_owned(), failure_domain.clone())]),
        failure_domain,
        position: number,
        flavor: None,
        leaving: None,
    }
}

/// The transaction that creates the environment: its nodes, and releases that are not deployed yet.
pub(crate) fn founding(env: &EnvName, design: &Design, releases: u64) -> Result<Txn, serde_json::Error> {
    let keys = Keys::new(env);
    let mut txn = Txn::new().op(Op::put_json(keys.store_epoch(), &1_u64)?);
    for (name, role, number) in design.nodes() {
        txn = txn.op(Op::put_json(keys.node(&name), &node_record(design, &role, number))?);
        txn = txn.op(Op::put(keys.provisioned(true, &name), "{}"));
    }
    for number in 1..=releases {
        let release = ReleaseRecord {
            digest: format!("sha256:{number:064x}"),
            serial: number,
            size: 1,
            content: format!("sha256:{number:064x}"),
            signed: SignedManifest::default(),
            pushed: START,
            by: "ann".into(),
        };
        txn = txn.op(Op::put_json(keys.release(&version(number)), &release)?);
    }
    Ok(txn)
}
