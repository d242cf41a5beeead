//! A node's interfaces, as rules read them.

use std::collections::HashSet;

use super::{Placed, addresses};
use crate::rules::Thing;
use crate::span::Span;
use crate::yaml::Node;

#[derive(Debug)]
pub(crate) struct Interface<'d> {
    pub name: &'d str,
    pub at: Span,
    pub link: Option<Placed<&'d str>>,
    pub devices: Vec<Placed<&'d str>>,
    pub networks: Vec<Placed<&'d str>>,
    pub mtu: Option<Placed<i64>>,
}

/// The interfaces under a node's key `interfaces`.
pub(crate) fn interfaces(node: &Node) -> impl Iterator<Item = Interface<'_>> {
    let entries = node.map().map(|map| map.entries()).unwrap_or_default();
    entries.iter().map(|entry| Interface {
        name: &entry.key.text,
        at: entry.key.span,
        link: Placed::text(&entry.value, "device_link"),
        devices: Placed::texts(&entry.value, "devices"),
        networks: Placed::texts(&entry.value, "networks"),
        mtu: Placed::integer(&entry.value, "mtu"),
    })
}

/// The networks of all interfaces under a node's key `interfaces`: for who wants nothing else of them.
pub(crate) fn interface_networks(node: &Node) -> impl Iterator<Item = Placed<&str>> {
    let entries = node.map().map(|map| map.entries()).unwrap_or_default();
    let lists = entries.iter().filter_map(|entry| entry.value.get("networks")?.items());
    lists.flatten().filter_map(|item| Some(Placed { value: item.text()?, span: item.span }))
}

/// The networks that a node is in, by its interfaces or its addresses; some more than once. The network of its
/// out-of-band access is not among them: another machine, its controller, is in that one.
fn all_attached<'d>(node: &Thing<'d>) -> impl Iterator<Item = &'d str> + use<'d> {
    let by_interface = node.get("interfaces").into_iter().flat_map(interface_networks).map(|network| network.value);
    let out_of_band = node.get("oob").and_then(|oob| oob.get("network")?.text());
    let by_address = addresses(node).map(|address| address.network.value);
    by_interface.chain(by_address.filter(move |network| Some(*network) != out_of_band))
}

/// The networks that a node is in, each once.
pub(crate) fn attached<'d>(node: &Thing<'d>) -> Vec<&'d str> {
    let mut seen = HashSet::new();
    all_attached(node).filter(|name| seen.insert(*name)).collect()
}

pub(crate) fn is_attached(node: &Thing<'_>, network: &str) -> bool {
    all_attached(node).any(|name| name == network)
}
