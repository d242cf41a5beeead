//! A node's addresses, as rules read them.

use std::net::IpAddr;

use super::Network;
use super::Placed;
use crate::rules::{Site, Thing};
use crate::span::Span;
use crate::types::{Cidr, address};
use crate::yaml::Node;

/// One of a node's addresses.
#[derive(Debug)]
pub(crate) struct Given<'d> {
    pub network: Placed<&'d str>,
    /// The address, if it is one: neither `dhcp` nor absent nor malformed.
    pub address: Option<Placed<IpAddr>>,
    /// Whether there is an address, of whatever sort.
    pub is_there: bool,
    pub span: Span,
}

/// An address and the network that it is meant to be in.
#[derive(Debug)]
pub(crate) struct Placement<'s> {
    pub address: Placed<IpAddr>,
    pub network: &'s Network<'s>,
    /// Where the node names the network.
    pub network_at: Span,
}

impl Placement<'_> {
    /// The addresses of the network, if it says which they are and this is one of them. That it is none is one finding,
    /// and no reason for others.
    pub(crate) fn inside(&self) -> Option<Cidr> {
        self.network.cidr.map(|cidr| cidr.value).filter(|cidr| cidr.contains(self.address.value))
    }
}

/// The members of a node's `addresses` that name a network.
pub(crate) fn addresses<'d>(node: &Thing<'d>) -> impl Iterator<Item = Given<'d>> + use<'d> {
    let items = node.get("addresses").and_then(Node::items).unwrap_or_default();
    items.iter().filter_map(|item| {
        let network = Placed::text(item, "network")?;
        let given = item.get("address");
        let address = given.and_then(|node| Some(Placed { value: address(node.text()?)?, span: node.span }));
        Some(Given { network, address, is_there: given.is_some(), span: item.span })
    })
}

/// The addresses of a node that are written out, with their networks as far as those are there.
pub(crate) fn placements<'s>(site: &'s Site<'_>, node: &Thing<'s>) -> impl Iterator<Item = Placement<'s>> {
    addresses(node).filter_map(|given| {
        let network = site.topology().network(given.network.value)?;
        Some(Placement { address: given.address?, network, network_at: given.network.span })
    })
}
