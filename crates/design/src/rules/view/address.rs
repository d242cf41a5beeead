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
    /// The address as it is written, if there is one.
    pub written: Option<&'d Node>,
    pub span: Span,
}

impl Given<'_> {
    /// The address, if it is one: neither `dhcp` nor absent nor malformed. Made when it is asked for, since most rules
    /// want the network alone.
    pub(crate) fn address(&self) -> Option<Placed<IpAddr>> {
        let written = self.written?;
        Some(Placed { value: address(written.text()?)?, span: written.span })
    }
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
        Some(Given { network: Placed::text(item, "network")?, written: item.get("address"), span: item.span })
    })
}

/// The addresses of a node that are written out, with their networks as far as those are there.
pub(crate) fn placements<'s>(site: &'s Site<'_>, node: &Thing<'s>) -> impl Iterator<Item = Placement<'s>> {
    addresses(node).filter_map(|given| {
        let network = site.topology().network(given.network.value)?;
        Some(Placement { address: given.address()?, network, network_at: given.network.span })
    })
}
