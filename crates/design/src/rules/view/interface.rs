//! A node's interfaces, as rules read them.

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

/// The networks that a node is in, by its interfaces or its addresses, each once. The network of its out-of-band access
/// is not among them: another machine, its controller, is in that one.
pub(crate) fn attached<'d>(node: &Thing<'d>) -> Vec<&'d str> {
    let by_interface = node.get("interfaces").into_iter().flat_map(interfaces);
    let by_interface = by_interface.flat_map(|interface| interface.networks).map(|network| network.value);
    let out_of_band = node.get("oob").and_then(|oob| oob.get("network")?.text());
    let by_address = addresses(node).map(|address| address.network.value);
    let by_address = by_address.filter(|network| Some(*network) != out_of_band);
    let mut names: Vec<&'d str> = Vec::new();
    for name in by_interface.chain(by_address) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
