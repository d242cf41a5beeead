//! A node's addresses, as rules read them.

use std::net::IpAddr;

use super::Placed;
use crate::rules::Thing;
use crate::types::address;
use crate::yaml::Node;

/// One of a node's addresses.
#[derive(Debug)]
pub(crate) struct Given<'d> {
    pub network: Placed<&'d str>,
    /// The address, if it is one: neither `dhcp` nor absent nor malformed.
    pub address: Option<Placed<IpAddr>>,
}

/// The members of a node's `addresses` that name a network.
pub(crate) fn addresses<'d>(node: &Thing<'d>) -> impl Iterator<Item = Given<'d>> + use<'d> {
    let items = node.get("addresses").and_then(Node::items).unwrap_or_default();
    items.iter().filter_map(|item| {
        let network = Placed::text(item, "network")?;
        let given = item.get("address");
        let address = given.and_then(|node| Some(Placed { value: address(node.text()?)?, span: node.span }));
        Some(Given { network, address })
    })
}
