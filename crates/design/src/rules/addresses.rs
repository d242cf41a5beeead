//! Rules for the IP addresses of nodes: missing, outside their network, reserved, or used twice.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::finding::{Code, quote};
use crate::rules::view::{RangeKind, addresses, interface_networks, is_attached};
use crate::rules::{Claim, ClaimConflict, Claims, DocumentView, NodeAddress, RuleOutput, SiteView, attached};

/// Reports an entry of `addresses` that names a network and no address.
pub(super) fn address_missing(_: &SiteView<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    for given in addresses(node).filter(|given| given.written.is_none()) {
        let message = format!("the address in network {} is missing", quote(given.network.value));
        let help = "add address: ADDRESS, or address: dhcp if the node is given one";
        out.add(given.span, Code::AddressMissing.finding(message).help(help));
    }
}

/// Reports an address that is not in its network.
pub(super) fn address_outside(assigned: &NodeAddress<'_>, out: &mut RuleOutput) {
    let NodeAddress { address, network, .. } = assigned;
    if let Some(cidr) = network.cidr.filter(|cidr| !cidr.value.contains(address.value)) {
        let message = format!("{} is not in network {}", address.value, quote(network.name));
        let finding = Code::AddressOutside.finding(message).expected(format!("expected an address of {}", cidr.value));
        out.add_with_note(address.span, finding, "the network's addresses are these", cidr.span);
    }
}

/// Reports an address in a network without a CIDR.
pub(super) fn address_without_cidr(assigned: &NodeAddress<'_>, out: &mut RuleOutput) {
    let NodeAddress { network, network_at, .. } = assigned;
    if !network.has_cidr {
        let message = format!("network {} has no \"cidr\" that an address could be in", quote(network.name));
        let finding = Code::AddressWithoutCidr
            .finding(message)
            .help("add a cidr to the network: it defines which addresses are on the same network");
        out.add_with_note(*network_at, finding, "the network is here", network.at);
    }
}

/// Reports a node that has the network address or the broadcast address.
pub(super) fn address_of_no_host(assigned: &NodeAddress<'_>, out: &mut RuleOutput) {
    let NodeAddress { address, network, .. } = assigned;
    if let Some(cidr) = assigned.inside().filter(|cidr| cidr.is_of_no_host(address.value)) {
        let what = if address.value == cidr.network() { "the network itself" } else { "all hosts at once" };
        let message = format!("{} is the address of {what} in network {}", address.value, quote(network.name));
        out.add(address.span, Code::AddressOfNoHost.finding(message).help("give the node another address"));
    }
}

/// Reports a node that has the address of a gateway or of a DHCP relay.
pub(super) fn address_of_router(assigned: &NodeAddress<'_>, out: &mut RuleOutput) {
    let NodeAddress { address, network, .. } = assigned;
    let gateway = network.gateways().find(|gateway| gateway.value == address.value);
    let relay = network.relay.filter(|relay| relay.value == address.value);
    let taken = gateway.map(|gateway| (gateway, "a gateway")).or(relay.map(|relay| (relay, "the DHCP relay")));
    if let Some((other, what)) = taken {
        let message = format!("{} is the address of {what} of network {}", address.value, quote(network.name));
        let finding = Code::AddressOfRouter.finding(message).help("give the node another address");
        out.add_with_note(address.span, finding, "it is taken here", other.span);
    }
}

/// Reports a static address in a range that DHCP assigns.
pub(super) fn address_in_dhcp_range(assigned: &NodeAddress<'_>, out: &mut RuleOutput) {
    let NodeAddress { address, network, .. } = assigned;
    if let Some(range) = network.only_range(address.value, RangeKind::Dhcp) {
        let message = format!("{} is in a range of network {} that DHCP gives out", address.value, quote(network.name));
        let finding = Code::AddressInDhcpRange
            .finding(message)
            .help("give the node an address outside of the range, or set dhcp if DHCP assigns its address");
        out.add_with_note(address.span, finding, "the range is here", range.node.span);
    }
}

/// Reports an address in a reserved range.
pub(super) fn address_in_reserved_range(assigned: &NodeAddress<'_>, out: &mut RuleOutput) {
    let NodeAddress { address, network, .. } = assigned;
    if let Some(range) = network.only_range(address.value, RangeKind::Reserved) {
        let message = format!("{} is in a reserved range of network {}", address.value, quote(network.name));
        let finding = Code::AddressInReservedRange
            .finding(message)
            .help("give the node another address, or leave this one out of the range");
        out.add_with_note(address.span, finding, "the range is here", range.node.span);
    }
}

/// Reports an address outside the static ranges of its network, if the network has any.
pub(super) fn address_in_no_range(assigned: &NodeAddress<'_>, out: &mut RuleOutput) {
    let NodeAddress { address, network, .. } = assigned;
    if !network.has_ranges(RangeKind::Static) || assigned.inside().is_none() {
        return;
    }
    // An address in a range of another type is a different finding.
    if network.ranges_of(address.value).next().is_none() {
        let message = format!("{} is in no static range of network {}", address.value, quote(network.name));
        let finding = Code::AddressInNoRange
            .finding(message)
            .help("give the node an address of a static range, or make a range larger");
        let range = network.ranges.iter().find(|range| range.kind == Some(RangeKind::Static));
        match range {
            Some(range) => out.add_with_note(address.span, finding, "a static range is here", range.node.span),
            None => out.add(address.span, finding),
        }
    }
}

/// Claims each address of a node within its routing domain.
pub(super) fn claim_addresses(site: &SiteView<'_>, node: &DocumentView<'_>, claims: &mut Claims) {
    for given in addresses(node) {
        if let Some(address) = given.address() {
            let scope = address_scope(site, given.network.value);
            claims.add(Claim::Address { scope, address: address.value }, address.span);
        }
    }
}

/// Scope in which an address must be unique: the routing domain of its network, or the network if it has none.
fn address_scope(site: &SiteView<'_>, network: &str) -> u64 {
    let domain = site.topology().network(network).and_then(|network| network.routedomain);
    let mut hasher = DefaultHasher::new();
    domain.map(|domain| domain.value).ok_or(network).hash(&mut hasher);
    hasher.finish()
}

pub(super) fn address_conflict(taken: &ClaimConflict<'_>) -> String {
    match taken.claim {
        Claim::Address { address, .. } if taken.first == taken.second => {
            format!("the node has the address {address} twice")
        }
        Claim::Address { address, .. } => format!("{address} is the address of node {} already", quote(taken.first)),
        Claim::Mac(_) | Claim::Name(_) => format!("the address is that of node {} already", quote(taken.first)),
    }
}

/// Reports an address in a network that none of the node's interfaces is in.
pub(super) fn address_without_interface(_: &SiteView<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(part) = node.get("interfaces") else { return };
    let mut networks: Vec<&str> = interface_networks(part).map(|network| network.value).collect();
    // Without networks, the interfaces are configured outside of the design.
    if networks.is_empty() {
        return;
    }
    networks.sort_unstable();
    let out_of_band = node.get("oob").and_then(|oob| oob.get("network")?.text());
    for network in addresses(node).map(|given| given.network) {
        if networks.binary_search(&network.value).is_err() && Some(network.value) != out_of_band {
            let message = format!("no interface of the node is in network {}", quote(network.value));
            let help = "add the network to an interface, or remove the address";
            out.add(network.span, Code::AddressWithoutInterface.finding(message).help(help));
        }
    }
}

/// Reports a primary network that the node is not in.
pub(super) fn primary_not_attached(_: &SiteView<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(primary) = node.get("primary_network") else { return };
    let Some(name) = primary.text() else { return };
    if is_attached(node, name) {
        return;
    }
    let networks = attached(node);
    // A node without networks is connected outside of the design.
    if !networks.is_empty() {
        let message = format!("the node is not in its primary network {}", quote(name));
        let help = format!("the node is in {}", networks.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", "));
        out.add(primary.span, Code::PrimaryNotAttached.finding(message).help(help));
    }
}

/// Reports a node that has addresses, but none in its primary network.
pub(super) fn primary_without_address(_: &SiteView<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    let Some(primary) = node.get("primary_network") else { return };
    let Some(name) = primary.text() else { return };
    let mut given = addresses(node).peekable();
    let has_some = given.peek().is_some();
    let has_primary = given.any(|given| given.network.value == name);
    // A node that is not in the network is a different finding.
    if has_some && !has_primary && is_attached(node, name) {
        let message = format!("the node has addresses, but none in its primary network {}", quote(name));
        let help = "add one, or set address: dhcp; or choose another primary network";
        out.add(node.at, Code::PrimaryWithoutAddress.finding(message).help(help));
    }
}
