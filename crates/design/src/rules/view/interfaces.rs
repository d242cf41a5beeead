//! Interfaces and addresses of a node, as rules read them.

use std::collections::HashSet;
use std::net::IpAddr;

use crate::rules::view::{Network, Spanned};
use crate::rules::{DocumentView, Site};
use crate::span::Span;
use crate::types::{Cidr, address};
use crate::yaml::Node;

#[derive(Debug)]
pub(crate) struct Interface<'d> {
    pub name: &'d str,
    pub at: Span,
    pub link: Option<Spanned<&'d str>>,
    pub devices: Vec<Spanned<&'d str>>,
    pub networks: Vec<Spanned<&'d str>>,
    pub mtu: Option<Spanned<i64>>,
}

/// The interfaces under a node's key `interfaces`.
pub(crate) fn interfaces(node: &Node) -> impl Iterator<Item = Interface<'_>> {
    let entries = node.map().map(|map| map.entries()).unwrap_or_default();
    entries.iter().map(|entry| Interface {
        name: &entry.key.text,
        at: entry.key.span,
        link: Spanned::text(&entry.value, "device_link"),
        devices: Spanned::texts(&entry.value, "devices"),
        networks: Spanned::texts(&entry.value, "networks"),
        mtu: Spanned::integer(&entry.value, "mtu"),
    })
}

/// Networks of all interfaces under a node's key `interfaces`.
pub(crate) fn interface_networks(node: &Node) -> impl Iterator<Item = Spanned<&str>> {
    let entries = node.map().map(|map| map.entries()).unwrap_or_default();
    let lists = entries.iter().filter_map(|entry| entry.value.get("networks")?.items());
    lists.flatten().filter_map(|item| Some(Spanned { value: item.text()?, span: item.span }))
}

/// Networks of a node, by its interfaces and its addresses, with duplicates. Excludes the network of its out-of-band
/// access: that is a network of the management controller.
fn all_attached<'d>(node: &DocumentView<'d>) -> impl Iterator<Item = &'d str> + use<'d> {
    let by_interface = node.get("interfaces").into_iter().flat_map(interface_networks).map(|network| network.value);
    let out_of_band = node.get("oob").and_then(|oob| oob.get("network")?.text());
    let by_address = addresses(node).map(|address| address.network.value);
    by_interface.chain(by_address.filter(move |network| Some(*network) != out_of_band))
}

/// Networks of a node, without duplicates.
pub(crate) fn attached<'d>(node: &DocumentView<'d>) -> Vec<&'d str> {
    let mut seen = HashSet::new();
    all_attached(node).filter(|name| seen.insert(*name)).collect()
}

pub(crate) fn is_attached(node: &DocumentView<'_>, network: &str) -> bool {
    all_attached(node).any(|name| name == network)
}

/// One entry of a node's `addresses`.
#[derive(Debug)]
pub(crate) struct AddressEntry<'d> {
    pub network: Spanned<&'d str>,
    /// The field `address`.
    pub written: Option<&'d Node>,
    pub span: Span,
}

impl AddressEntry<'_> {
    /// The static address: none for `dhcp`, an absent or a malformed address. Parsed on demand: most rules read the
    /// network alone.
    pub(crate) fn address(&self) -> Option<Spanned<IpAddr>> {
        let written = self.written?;
        Some(Spanned { value: address(written.text()?)?, span: written.span })
    }
}

/// A static address of a node with its network.
#[derive(Debug)]
pub(crate) struct NodeAddress<'s> {
    pub address: Spanned<IpAddr>,
    pub network: &'s Network<'s>,
    /// Span of the network's name in the node.
    pub network_at: Span,
}

impl NodeAddress<'_> {
    /// CIDR of the network, if it contains the address. An address outside is reported by one rule alone.
    pub(crate) fn inside(&self) -> Option<Cidr> {
        self.network.cidr.map(|cidr| cidr.value).filter(|cidr| cidr.contains(self.address.value))
    }
}

/// Entries of a node's `addresses` that name a network.
pub(crate) fn addresses<'d>(node: &DocumentView<'d>) -> impl Iterator<Item = AddressEntry<'d>> + use<'d> {
    let items = node.get("addresses").and_then(Node::items).unwrap_or_default();
    items.iter().filter_map(|item| {
        Some(AddressEntry { network: Spanned::text(item, "network")?, written: item.get("address"), span: item.span })
    })
}

/// Static addresses of a node whose network exists.
pub(crate) fn node_addresses<'s>(site: &'s Site<'_>, node: &DocumentView<'s>) -> impl Iterator<Item = NodeAddress<'s>> {
    addresses(node).filter_map(|given| {
        let network = site.topology().network(given.network.value)?;
        Some(NodeAddress { address: given.address()?, network, network_at: given.network.span })
    })
}
