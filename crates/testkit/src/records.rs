//! Test helpers that build names, node records and release records.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::names::{EnvName, NodeName, Role, Version};
use muster_core::node::record::NodeRecord;
use muster_core::release::ReleaseRecord;
use muster_core::release::manifest::SignedManifest;
use muster_release::bundle::digest_of;

pub fn env(name: &str) -> EnvName {
    EnvName::new(name).unwrap()
}

pub fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub fn role(name: &str) -> Role {
    Role::new(name).unwrap()
}

pub fn version(name: &str) -> Version {
    Version::new(name).unwrap()
}

/// A record of a node that is in service, with neither profile nor labels.
pub fn node_record(role_name: &str, failure_domain: &str, position: u32) -> NodeRecord {
    NodeRecord {
        role: role(role_name),
        profile: None,
        labels: BTreeMap::new(),
        failure_domain: failure_domain.into(),
        position,
        flavor: None,
        host_name: None,
        leaving: None,
        created: None,
    }
}

/// Records of nodes that are given as (name, role), positioned in this order.
pub fn node_records(nodes: &[(&str, &str)], failure_domain: &str) -> BTreeMap<NodeName, NodeRecord> {
    let record =
        |(position, (name, role)): (u32, &(&str, &str))| (node(name), node_record(role, failure_domain, position));
    (0..).zip(nodes).map(record).collect()
}

/// A record of an unsigned release that was never built. The bytes of its bundle are its name.
pub fn release_record(name: &str, serial: u64) -> ReleaseRecord {
    let (digest, size) = digest_of(name.as_bytes()).unwrap();
    ReleaseRecord {
        digest: digest.to_string(),
        serial,
        size,
        content: digest.to_string(),
        signed: SignedManifest::default(),
        pushed: Timestamp::UNIX_EPOCH,
        by: "test".into(),
        checks: None,
    }
}

/// Records of such releases, with serials from 1 in this order.
pub fn release_records(names: &[&str]) -> BTreeMap<Version, ReleaseRecord> {
    (1..).zip(names).map(|(serial, name)| (version(name), release_record(name, serial))).collect()
}
