//! Derives a node's final values: FQDN, DNS, routes, devices, kernel parameters and boot actions.
//!
//! Everything is a pure function of the effective design, computed on demand.

pub(crate) mod boot_actions;
pub(crate) mod kernel_params;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Serialize, Serializer};

use crate::kinds::Kind;
use crate::resolve::kernel_params::hardware_profile;
use crate::rules::view::{addresses, entries, items};
use crate::rules::{DocumentView, NetworkView, SiteView, attached};
use crate::types::{Cidr, address};
use crate::yaml::YamlNode;

pub use kernel_params::{KernelParam, KernelParams};

/// Domain of a node without a primary network, or whose primary network has none.
const DEFAULT_DOMAIN: &str = "local";

/// Resolved values of one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResolvedNode {
    /// The node's own label: `web1`.
    pub host_name: String,
    /// The host name with the domain of the primary network: `web1.example.org`.
    pub fqdn: String,
    pub dns: Dns,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// By network; `dhcp` where the address is assigned.
    pub addresses: BTreeMap<String, String>,
    /// As in the effective document: devices, networks and settings of each interface.
    pub interfaces: BTreeMap<String, serde_json::Value>,
    /// Routes of all networks of the node, with routing domains expanded.
    pub routes: Vec<Route>,
    /// Devices of its interfaces and disks.
    pub devices: Devices,
    pub kernel_params: KernelParams,
    /// Boot actions that select the node, by name.
    pub boot_actions: Vec<String>,
}

impl ResolvedNode {
    /// The values as a JSON object, without empty members.
    pub fn to_values(&self) -> serde_json::Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        prune(&mut value);
        value
    }
}

/// Removes empty objects, lists and texts.
fn prune(value: &mut serde_json::Value) {
    let is_empty = |value: &serde_json::Value| match value {
        serde_json::Value::Object(members) => members.is_empty(),
        serde_json::Value::Array(items) => items.is_empty(),
        serde_json::Value::String(text) => text.is_empty(),
        serde_json::Value::Null => true,
        serde_json::Value::Bool(_) | serde_json::Value::Number(_) => false,
    };
    if let serde_json::Value::Object(members) = value {
        members.values_mut().for_each(prune);
        members.retain(|_, member| !is_empty(member));
    }
}

pub(crate) fn resolve(site: &SiteView<'_>, node: &DocumentView<'_>) -> ResolvedNode {
    ResolvedNode {
        host_name: host_name(node).into_owned(),
        fqdn: fqdn(site, node),
        dns: dns(site, node),
        rack: node.text("rack").map(str::to_owned),
        labels: texts(node, "labels"),
        addresses: node_addresses(node),
        interfaces: entries(node.tree, "interfaces")
            .iter()
            .map(|entry| (entry.key.text.to_string(), serde_json::to_value(&entry.value).unwrap_or_default()))
            .collect(),
        routes: node_routes(site, node),
        devices: devices(site, node),
        kernel_params: kernel_params::kernel_params(site, node),
        boot_actions: boot_actions::of_node(site, node),
    }
}

fn texts(node: &DocumentView<'_>, key: &str) -> BTreeMap<String, String> {
    let entries = entries(node.tree, key).iter();
    entries.filter_map(|entry| Some((entry.key.text.to_string(), entry.value.text()?.to_owned()))).collect()
}

fn node_addresses(node: &DocumentView<'_>) -> BTreeMap<String, String> {
    let written = addresses(node);
    written.filter_map(|entry| Some((entry.network.value.to_owned(), entry.written?.text()?.to_owned()))).collect()
}

/// Host name: the field `host_name`, or the name of the node with `_` replaced by `-`.
pub(crate) fn host_name<'d>(node: &DocumentView<'d>) -> Cow<'d, str> {
    match node.text("host_name") {
        Some(given) => given.into(),
        None if node.name.contains('_') => node.name.replace('_', "-").into(),
        None => node.name.into(),
    }
}

/// The host name with the domain of the primary network. A host name with dots is complete.
pub(crate) fn fqdn(site: &SiteView<'_>, node: &DocumentView<'_>) -> String {
    let host_name = host_name(node);
    if host_name.contains('.') { host_name.into_owned() } else { format!("{host_name}.{}", domain(site, node)) }
}

/// A node's domain and name servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dns {
    pub domain: String,
    pub servers: Vec<IpAddr>,
}

fn dns(site: &SiteView<'_>, node: &DocumentView<'_>) -> Dns {
    let section = dns_section(site, node);
    let servers = section.and_then(|dns| dns.get("servers")).and_then(YamlNode::items).unwrap_or_default();
    Dns {
        domain: domain(site, node).to_owned(),
        servers: servers.iter().filter_map(|server| address(server.text()?)).collect(),
    }
}

pub(crate) fn domain<'d>(site: &SiteView<'d>, node: &DocumentView<'d>) -> &'d str {
    dns_section(site, node).and_then(|dns| dns.get("domain")?.text()).unwrap_or(DEFAULT_DOMAIN)
}

fn dns_section<'d>(site: &SiteView<'d>, node: &DocumentView<'d>) -> Option<&'d YamlNode> {
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

fn devices(site: &SiteView<'_>, node: &DocumentView<'_>) -> Devices {
    let profile = hardware_profile(site, node);
    let aliases = profile.as_ref().and_then(|profile| profile.get("device_aliases"));
    let interfaces = entries(node.tree, "interfaces").iter().map(|entry| {
        let names = items(&entry.value, "devices").iter().filter_map(YamlNode::text);
        (entry.key.text.to_string(), names.map(|name| device(name, aliases)).collect())
    });
    let disks = node.get("storage").map(|storage| entries(storage, "disks")).unwrap_or_default();
    let disks = disks.iter().map(|entry| (entry.key.text.to_string(), device(&entry.key.text, aliases)));
    Devices { interfaces: interfaces.collect(), disks: disks.collect() }
}

/// An alias without an address counts as a system name.
fn device(name: &str, aliases: Option<&YamlNode>) -> Device {
    let by_address = || {
        let alias = aliases?.get(name)?;
        let text = |key: &str| alias.get(key).and_then(YamlNode::text).map(str::to_owned);
        Some(Device::Address {
            alias: name.to_owned(),
            address: text("address")?,
            bus_type: text("bus_type")?,
            dev_type: text("dev_type"),
        })
    };
    by_address().unwrap_or_else(|| Device::Name { name: name.to_owned() })
}

/// One route of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Network of the interface.
    pub network: String,
    #[serde(serialize_with = "as_text")]
    pub subnet: Cidr,
    pub gateway: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<i64>,
    /// Routing domain that the route was derived from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routedomain: Option<String>,
}

/// Routes of all networks of a node, in the order of its interfaces, with routing domains expanded.
///
/// Networks belong to a routing domain (`routedomain: X`). A network that has a route for the domain (`domain_routes`)
/// reaches the addresses of every other member through that route's gateway, whether it is a member itself or not. An
/// explicit route for the same addresses wins.
fn node_routes(site: &SiteView<'_>, node: &DocumentView<'_>) -> Vec<Route> {
    let networks = attached(node).into_iter().filter_map(|name| site.topology().network(name));
    networks.flat_map(|network| network_routes(site, network)).collect()
}

fn network_routes(site: &SiteView<'_>, network: &NetworkView<'_>) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    let route = |subnet: Cidr, gateway, metric, routedomain: Option<&str>| Route {
        network: network.name.to_owned(),
        subnet: subnet.canonical(),
        gateway,
        metric,
        routedomain: routedomain.map(str::to_owned),
    };
    for written in &network.routes {
        if let (Some(subnet), Some(gateway)) = (written.subnet, written.gateway) {
            routes.push(route(subnet.value, gateway.value, written.metric, None));
        }
    }
    for through in &network.domain_routes {
        let (Some(domain), Some(gateway)) = (through.domain, through.gateway) else { continue };
        let members = site.topology().members(domain.value);
        for subnet in members.filter_map(|member| Some(member.cidr?.value.canonical())) {
            let is_own = network.cidr.is_some_and(|own| own.value.canonical() == subnet);
            let is_there = routes.iter().any(|route| route.subnet == subnet);
            if !is_own && !is_there && subnet.address.is_ipv4() == gateway.value.is_ipv4() {
                routes.push(route(subnet, gateway.value, through.metric, Some(domain.value)));
            }
        }
    }
    routes
}

fn as_text<S: Serializer>(cidr: &Cidr, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(cidr)
}
