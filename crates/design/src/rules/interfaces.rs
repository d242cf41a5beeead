//! Rules for the network interfaces of nodes: links, devices, bonds and networks.

use std::collections::{HashMap, HashSet};

use crate::finding::{Code, quote};
use crate::kinds::Kind;
use crate::rules::view::{BondMode, NetworkCidr, Spanned, interface_networks, overlapping};
use crate::rules::{DocumentView, InterfaceView, RuleOutput, SiteView};

/// Reports an interface in a network that its link does not carry.
pub(super) fn network_not_allowed(site: &SiteView<'_>, interfaces: &[InterfaceView<'_>], out: &mut RuleOutput) {
    for interface in interfaces {
        let Some(link) = interface.link.and_then(|link| site.topology().link(link.value)) else { continue };
        // A network that does not exist was reported.
        let networks = interface.networks.iter().filter(|network| site.has(Kind::Network, network.value));
        for network in networks.filter(|network| !link.allows(network.value)) {
            let message = format!("link {} does not carry network {}", quote(link.name), quote(network.value));
            let help = match site.topology().carrier(network.value) {
                Some(other) => format!(
                    "the network is on link {}: move it to an interface there, or to the allowed_networks of {}",
                    quote(other.name),
                    quote(link.name)
                ),
                None => format!("add it to the allowed_networks of {}", quote(link.name)),
            };
            let finding = Code::NetworkNotAllowed.finding(message).help(help);
            out.add_with_note(network.span, finding, "the link is here", link.at);
        }
    }
}

/// Reports an interface without a link, although a link carries its network.
pub(super) fn interface_without_link(site: &SiteView<'_>, interfaces: &[InterfaceView<'_>], out: &mut RuleOutput) {
    for interface in interfaces.iter().filter(|interface| interface.link.is_none()) {
        let carriers = interface.networks.iter();
        let mut carriers = carriers.filter_map(|network| Some((network, site.topology().carrier(network.value)?)));
        if let Some((network, link)) = carriers.next() {
            let message =
                format!("interface {} is in network {}, but on no link", quote(interface.name), quote(network.value));
            let help = format!("the network is on link {0}: add device_link: {0}", quote(link.name));
            out.add(interface.at, Code::InterfaceWithoutLink.finding(message).help(help));
        }
    }
}

/// Reports an interface whose MTU is larger than the MTU of its link.
pub(super) fn interface_mtu_above_link(site: &SiteView<'_>, interfaces: &[InterfaceView<'_>], out: &mut RuleOutput) {
    for interface in interfaces {
        let Some(link) = interface.link.and_then(|link| site.topology().link(link.value)) else { continue };
        let (Some(mtu), Some(most)) = (interface.mtu, link.mtu) else { continue };
        if mtu.value > most.value {
            let message = format!(
                "the MTU {} of interface {} is more than the {} of its link {}",
                mtu.value,
                quote(interface.name),
                most.value,
                quote(link.name)
            );
            let finding =
                Code::InterfaceMtuAboveLink.finding(message).expected(format!("expected at most {}", most.value));
            out.add_with_note(mtu.span, finding, "the link's MTU is here", most.span);
        }
    }
}

/// Reports an interface whose MTU is smaller than the MTU of one of its networks.
pub(super) fn network_mtu_above_interface(site: &SiteView<'_>, interfaces: &[InterfaceView<'_>], out: &mut RuleOutput) {
    for interface in interfaces {
        let Some(most) = interface.mtu else { continue };
        for network in interface.networks.iter().filter_map(|network| site.topology().network(network.value)) {
            if let Some(mtu) = network.mtu.filter(|mtu| mtu.value > most.value) {
                let message = format!(
                    "the MTU {} of interface {} is less than the {} of its network {}",
                    most.value,
                    quote(interface.name),
                    mtu.value,
                    quote(network.name)
                );
                let finding = Code::NetworkMtuAboveInterface
                    .finding(message)
                    .expected(format!("expected at least {}", mtu.value));
                out.add_with_note(most.span, finding, "the network's MTU is here", mtu.span);
            }
        }
    }
}

/// Reports an interface with several devices on a link without a bond.
pub(super) fn devices_without_bond(site: &SiteView<'_>, interfaces: &[InterfaceView<'_>], out: &mut RuleOutput) {
    for interface in interfaces {
        let Some(link) = interface.link.and_then(|link| site.topology().link(link.value)) else { continue };
        if let [_, second, ..] = interface.devices.as_slice()
            && link.bond_mode() == Some(BondMode::Disabled)
        {
            let message = format!(
                "interface {} has {} devices, but its link {} has no bond",
                quote(interface.name),
                interface.devices.len(),
                quote(link.name)
            );
            let finding = Code::DevicesWithoutBond
                .finding(message)
                .help("give the link a bonding mode, such as bonding: {mode: active-backup}, or leave one device");
            out.add_with_note(second.span, finding, "the link is here", link.at);
        }
    }
}

/// Reports a bond with fewer than two devices.
pub(super) fn bond_of_one(site: &SiteView<'_>, interfaces: &[InterfaceView<'_>], out: &mut RuleOutput) {
    for interface in interfaces.iter().filter(|interface| interface.devices.len() < 2) {
        let Some(link) = interface.link.and_then(|link| site.topology().link(link.value)) else { continue };
        let mode = match link.bond_mode() {
            Some(mode @ (BondMode::Lacp | BondMode::ActiveBackup | BondMode::BalanceRr)) => mode,
            Some(BondMode::Disabled) | None => continue,
        };
        let count = if interface.devices.is_empty() { "no device" } else { "one device" };
        let message = format!(
            "interface {} has {count}, but its link {} has a bond of mode {}",
            quote(interface.name),
            quote(link.name),
            quote(mode.word())
        );
        let finding = Code::BondOfOne.finding(message).help("name the devices that make the bond");
        let at = interface.devices.first().map_or(interface.at, |device| device.span);
        out.add_with_note(at, finding, "the link is here", link.at);
    }
}

/// Reports a device that is a member of two bonds.
pub(super) fn device_in_two_bonds(_: &SiteView<'_>, interfaces: &[InterfaceView<'_>], out: &mut RuleOutput) {
    let mut members = HashMap::new();
    // An interface of one device may use a device of a bond: many machines are installed over a device that is bonded
    // later.
    for interface in interfaces.iter().filter(|interface| interface.devices.len() > 1) {
        for device in &interface.devices {
            let (first, at) = *members.entry(device.value).or_insert((interface.name, device.span));
            if first != interface.name {
                let message = format!(
                    "device {} is in two bonds: {} and {}",
                    quote(device.value),
                    quote(first),
                    quote(interface.name)
                );
                let finding = Code::DeviceInTwoBonds
                    .finding(message)
                    .help("leave it in one of them; an inherited device is removed with '!NAME'");
                out.add_with_note(device.span, finding, "the first bond has it here", at);
            }
        }
    }
}

/// Reports a device that is two interfaces on the same link.
pub(super) fn device_twice(_: &SiteView<'_>, interfaces: &[InterfaceView<'_>], out: &mut RuleOutput) {
    let mut alone = HashMap::new();
    for interface in interfaces {
        // Bonds have a rule of their own. On another link the device may be used at another time: during the
        // installation, and after.
        let [device] = interface.devices.as_slice() else { continue };
        let link = interface.link.map(|link| link.value);
        let (first, at) = *alone.entry((device.value, link)).or_insert((interface.name, device.span));
        if first != interface.name {
            let message = format!(
                "interfaces {} and {} are the same device {}",
                quote(first),
                quote(interface.name),
                quote(device.value)
            );
            let finding =
                Code::DeviceTwice.finding(message).help("make one interface of the two, with the networks of both");
            out.add_with_note(device.span, finding, "the first one has it here", at);
        }
    }
}

/// Reports a node that is in one network through two interfaces.
pub(super) fn network_twice(_: &SiteView<'_>, interfaces: &[InterfaceView<'_>], out: &mut RuleOutput) {
    let mut through = HashMap::new();
    for interface in interfaces {
        for network in &interface.networks {
            let (first, at) = *through.entry(network.value).or_insert((interface.name, network.span));
            if first != interface.name {
                let message = format!(
                    "interfaces {} and {} are both in network {}",
                    quote(first),
                    quote(interface.name),
                    quote(network.value)
                );
                let finding = Code::NetworkTwice
                    .finding(message)
                    .help("leave it to one of them; an inherited network is removed with '!NAME'");
                out.add_with_note(network.span, finding, "the first one has it here", at);
            }
        }
    }
}

/// Reports networks of one node that share addresses: the node could not choose an interface.
pub(super) fn networks_overlap_on_node(site: &SiteView<'_>, interfaces: &[InterfaceView<'_>], out: &mut RuleOutput) {
    let mut seen = HashSet::new();
    let mut networks: Vec<NetworkCidr<'_, '_>> = Vec::new();
    for network in interfaces.iter().flat_map(|interface| &interface.networks) {
        if let Some(read) = site.topology().network(network.value)
            && let Some(cidr) = read.cidr
            && seen.insert(network.value)
        {
            networks.push((read, Spanned { value: cidr.value, span: network.span }));
        }
    }
    for ((wider, first), (network, second)) in overlapping(networks) {
        // Within one routing domain an overlap is an error of another rule.
        if wider.routedomain.zip(network.routedomain).is_some_and(|(a, b)| a.value == b.value) {
            continue;
        }
        let message =
            format!("networks {} and {} of one node have addresses in common", quote(wider.name), quote(network.name));
        let finding = Code::NetworksOverlapOnNode
            .finding(message)
            .help("give one of the networks other addresses, or take the node out of one");
        out.add_with_note(second.span, finding, "the other one is here", first.span);
    }
}

/// Reports a node that uses a network local to another rack.
pub(super) fn network_of_other_rack(site: &SiteView<'_>, node: &DocumentView<'_>, out: &mut RuleOutput) {
    let (Some(part), Some(rack)) = (node.get("interfaces"), node.get("rack")) else { return };
    let Some(name) = rack.text() else { return };
    for network in interface_networks(part) {
        let racks = site.topology().racks_of(network.value);
        if !racks.is_empty() && !racks.contains(&name) {
            let racks = racks.iter().map(|rack| quote(rack)).collect::<Vec<_>>().join(", ");
            let message = format!(
                "network {} does not leave rack {racks}, and is used in rack {}",
                quote(network.value),
                quote(name)
            );
            let finding = Code::NetworkOfOtherRack
                .finding(message)
                .help("use a network of the node's own rack, or take it out of the local_networks");
            out.add_with_note(network.span, finding, "the node's rack is here", rack.span);
        }
    }
}
