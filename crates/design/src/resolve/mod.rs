//! Values that follow from a node's effective document: names, name servers, routes, devices, kernel parameters and boot
//! actions.
//!
//! Everything is a pure function of the effective design, computed on demand.

pub(crate) mod boot_actions;
pub(crate) mod kernel_params;
mod routes;

pub use kernel_params::{KernelParam, KernelParams};
pub use routes::Route;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;

use crate::kinds::Kind;
use crate::resolve::kernel_params::hardware_profile;
use crate::rules::view::{entries, items};
use crate::rules::{DocumentView, Site};
use crate::types::address;
use crate::yaml::Node;

/// Resolved values of one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResolvedNode {
    /// The node's own label: `web1`.
    pub host_name: String,
    /// The host name with the domain of the primary network: `web1.example.org`.
    pub fqdn: String,
    pub dns: Dns,
    /// Routes of all networks of the node, with routing domains expanded.
    pub routes: Vec<Route>,
    /// Devices of its interfaces and disks.
    pub devices: Devices,
    pub kernel_params: KernelParams,
    /// Boot actions that select the node, by name.
    pub boot_actions: Vec<String>,
}

pub(crate) fn resolve(site: &Site<'_>, node: &DocumentView<'_>) -> ResolvedNode {
    ResolvedNode {
        host_name: host_name(node).into_owned(),
        fqdn: fqdn(site, node),
        dns: dns(site, node),
        routes: routes::of_node(site, node),
        devices: devices(site, node),
        kernel_params: kernel_params::kernel_params(site, node),
        boot_actions: boot_actions::of_node(site, node),
    }
}

/// Host name: the field `host_name`, or the name of the node with `_` replaced by `-`.
pub(crate) fn host_name<'d>(node: &DocumentView<'d>) -> Cow<'d, str> {
    match node.text("host_name") {
        Some(given) => given.into(),
        None if node.name.contains('_') => node.name.replace('_', "-").into(),
        None => node.name.into(),
    }
}

/// The host name with the domain of the primary network.
pub(crate) fn fqdn(site: &Site<'_>, node: &DocumentView<'_>) -> String {
    format!("{}.{}", host_name(node), domain(site, node))
}

/// Domain of a node without a primary network, or whose primary network has none.
const DEFAULT_DOMAIN: &str = "local";

/// A node's domain and name servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dns {
    pub domain: String,
    pub servers: Vec<IpAddr>,
}

fn dns(site: &Site<'_>, node: &DocumentView<'_>) -> Dns {
    let section = dns_section(site, node);
    let servers = section.and_then(|dns| dns.get("servers")).and_then(Node::items).unwrap_or_default();
    Dns {
        domain: domain(site, node).to_owned(),
        servers: servers.iter().filter_map(|server| address(server.text()?)).collect(),
    }
}

pub(crate) fn domain<'d>(site: &Site<'d>, node: &DocumentView<'d>) -> &'d str {
    dns_section(site, node).and_then(|dns| dns.get("domain")?.text()).unwrap_or(DEFAULT_DOMAIN)
}

fn dns_section<'d>(site: &Site<'d>, node: &DocumentView<'d>) -> Option<&'d Node> {
    site.get(Kind::Network, node.text("primary_network")?)?.get("dns")
}

/// Devices of a node's interfaces and disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Devices {
    /// By interface, in the order of its list.
    pub interfaces: BTreeMap<String, Vec<Device>>,
    /// By the name of the disk.
    pub disks: BTreeMap<String, Device>,
}

/// A device, by bus address or by system name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Device {
    /// An alias of the hardware profile.
    Address {
        alias: String,
        address: String,
        bus_type: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        dev_type: Option<String>,
    },
    Name {
        name: String,
    },
}

fn devices(site: &Site<'_>, node: &DocumentView<'_>) -> Devices {
    let profile = hardware_profile(site, node);
    let aliases = profile.as_ref().and_then(|profile| profile.get("device_aliases"));
    let interfaces = entries(node.tree, "interfaces").iter().map(|entry| {
        let names = items(&entry.value, "devices").iter().filter_map(Node::text);
        (entry.key.text.to_string(), names.map(|name| device(name, aliases)).collect())
    });
    let disks = node.get("storage").map(|storage| entries(storage, "disks")).unwrap_or_default();
    let disks = disks.iter().map(|entry| (entry.key.text.to_string(), device(&entry.key.text, aliases)));
    Devices { interfaces: interfaces.collect(), disks: disks.collect() }
}

/// An alias without an address counts as a system name.
fn device(name: &str, aliases: Option<&Node>) -> Device {
    let by_address = || {
        let alias = aliases?.get(name)?;
        let text = |key: &str| alias.get(key).and_then(Node::text).map(str::to_owned);
        Some(Device::Address {
            alias: name.to_owned(),
            address: text("address")?,
            bus_type: text("bus_type")?,
            dev_type: text("dev_type"),
        })
    };
    by_address().unwrap_or_else(|| Device::Name { name: name.to_owned() })
}
