//! Who answers a node's questions about names: what its primary network says.

use std::net::IpAddr;

use serde::Serialize;

use crate::kinds::Kind;
use crate::rules::{Site, Thing};
use crate::types::address;
use crate::yaml::Node;

/// The domain of a node whose primary network names none, or that has no primary network.
const DEFAULT_DOMAIN: &str = "local";

/// A node's domain and name servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dns {
    pub domain: String,
    pub servers: Vec<IpAddr>,
}

pub(super) fn dns(site: &Site<'_>, node: &Thing<'_>) -> Dns {
    let section = section(site, node);
    let servers = section.and_then(|dns| dns.get("servers")).and_then(Node::items).unwrap_or_default();
    Dns {
        domain: domain(site, node).to_owned(),
        servers: servers.iter().filter_map(|server| address(server.text()?)).collect(),
    }
}

pub(crate) fn domain<'d>(site: &Site<'d>, node: &Thing<'d>) -> &'d str {
    section(site, node).and_then(|dns| dns.get("domain")?.text()).unwrap_or(DEFAULT_DOMAIN)
}

fn section<'d>(site: &Site<'d>, node: &Thing<'d>) -> Option<&'d Node> {
    site.get(Kind::Network, node.text("primary_network")?)?.get("dns")
}
