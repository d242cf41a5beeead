//! Rules for network links: MTU, bonds, trunks and VLANs.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use crate::file_text::Span;
use crate::finding::{Code, quote};
use crate::rules::view::{BondMode, NetworkView, Spanned};
use crate::rules::{InterfaceView, RuleOutput, SiteView};

/// IPv6 requires 1280 bytes; the kernel accepts at most 65536.
const MTU_RANGE: RangeInclusive<i64> = 1280..=65_536;

/// Reports an MTU of a network or a link that is out of range.
pub(super) fn mtu_range(site: &SiteView<'_>, out: &mut RuleOutput) {
    let topology = site.topology();
    topology.networks.iter().for_each(|network| check_mtu(network.mtu, out));
    topology.links.iter().for_each(|link| check_mtu(link.mtu, out));
}

pub(super) fn interface_mtu_range(_: &SiteView<'_>, interfaces: &[InterfaceView<'_>], out: &mut RuleOutput) {
    interfaces.iter().for_each(|interface| check_mtu(interface.mtu, out));
}

fn check_mtu(mtu: Option<Spanned<i64>>, out: &mut RuleOutput) {
    if let Some(mtu) = mtu.filter(|mtu| !MTU_RANGE.contains(&mtu.value)) {
        let finding = Code::MtuRange.finding(format!("an MTU cannot be {}", mtu.value));
        out.add(mtu.span, finding.expected(format!("expected {} to {}", MTU_RANGE.start(), MTU_RANGE.end())));
    }
}

/// Reports a network whose MTU is larger than the MTU of its link.
pub(super) fn mtu_above_link(site: &SiteView<'_>, out: &mut RuleOutput) {
    for link in &site.topology().links {
        let Some(most) = link.mtu else { continue };
        for network in link.allowed.iter().filter_map(|name| site.topology().network(name.value)) {
            if let Some(mtu) = network.mtu.filter(|mtu| mtu.value > most.value) {
                let message = format!(
                    "the MTU {} of network {} is more than the {} of its link {}",
                    mtu.value,
                    quote(network.name),
                    most.value,
                    quote(link.name)
                );
                let finding = Code::MtuAboveLink.finding(message).expected(format!("expected at most {}", most.value));
                out.add_with_note(mtu.span, finding, "the link's MTU is here", most.span);
            }
        }
    }
}

/// Reports a network that two links carry.
pub(super) fn network_on_two_links(site: &SiteView<'_>, out: &mut RuleOutput) {
    let mut carried = HashMap::new();
    for link in &site.topology().links {
        for network in &link.allowed {
            let (first, at) = *carried.entry(network.value).or_insert((link, network.span));
            if first.name != link.name {
                let message = format!(
                    "network {} is on two links: {} and {}",
                    quote(network.value),
                    quote(first.name),
                    quote(link.name)
                );
                let finding = Code::NetworkOnTwoLinks
                    .finding(message)
                    .help("remove it from one of them, or make two networks of it");
                out.add_with_note(network.span, finding, "the first link has it here", at);
            }
        }
    }
}

const BOND_OPTIONS: &[&str] = &["hash", "peer_rate", "mon_rate", "up_delay", "down_delay"];

/// Reports bonding options of a link that has no bond.
pub(super) fn bond_options_without_bond(site: &SiteView<'_>, out: &mut RuleOutput) {
    for link in site.topology().links.iter().filter(|link| link.bond_mode() == Some(BondMode::Disabled)) {
        let set: Vec<&str> =
            BOND_OPTIONS.iter().copied().filter(|option| link.bonding_option(option).is_some()).collect();
        if let Some(first) = set.first().and_then(|first| link.bonding_option(first)) {
            let options = set.iter().map(|option| quote(option)).collect::<Vec<_>>().join(", ");
            let message = format!("link {} has no bond, but options of a bond: {options}", quote(link.name));
            let help = "choose a mode (802.3ad, active-backup, balance-rr), or remove the options; in a document that \
                        inherits them, with '!NAME'";
            out.add(first.span, Code::BondOptionsWithoutBond.finding(message).help(help));
        }
    }
}

/// Reports a bond whose delays are shorter than its monitoring interval.
pub(super) fn bond_delay(site: &SiteView<'_>, out: &mut RuleOutput) {
    let bonds = site.topology().links.iter().filter(|link| link.bond_mode() != Some(BondMode::Disabled));
    for link in bonds {
        let Some(rate) = link.bonding_integer("mon_rate") else { continue };
        for key in ["up_delay", "down_delay"] {
            // A delay of 0 is deliberate. A delay below the monitoring interval has no effect.
            let delay = link.bonding_integer(key).filter(|delay| (1..rate.value).contains(&delay.value));
            if let Some(delay) = delay {
                let message = format!(
                    "the {} of {} ms is shorter than the mon_rate of {} ms",
                    quote(key),
                    delay.value,
                    rate.value
                );
                let finding = Code::BondDelay.finding(message).expected(format!("expected at least {}", rate.value));
                out.add_with_note(delay.span, finding, "the time between two looks is here", rate.span);
            }
        }
    }
}

/// Reports a bond that does not monitor its members.
pub(super) fn bond_unwatched(site: &SiteView<'_>, out: &mut RuleOutput) {
    for link in site.topology().links.iter().filter(|link| link.bond_mode() != Some(BondMode::Disabled)) {
        if let Some(rate) = link.bonding_integer("mon_rate").filter(|rate| rate.value == 0) {
            let message = format!("the bond of link {} never looks at its members", quote(link.name));
            let help = "100 is usual: a look every 100 milliseconds";
            out.add(rate.span, Code::BondUnwatched.finding(message).help(help));
        }
    }
}

/// Reports options of mode 802.3ad on a bond of another mode.
pub(super) fn bond_option_of_other_mode(site: &SiteView<'_>, out: &mut RuleOutput) {
    for link in &site.topology().links {
        let mode = match link.bond_mode() {
            Some(mode @ (BondMode::ActiveBackup | BondMode::BalanceRr)) => mode,
            Some(BondMode::Disabled | BondMode::Lacp) | None => continue,
        };
        for option in ["hash", "peer_rate"] {
            if let Some(node) = link.bonding_option(option) {
                let message = format!("{} means nothing to a bond of mode {}", quote(option), quote(mode.word()));
                let help = "remove it, or choose the mode 802.3ad";
                out.add(node.span, Code::BondOptionOfOtherMode.finding(message).help(help));
            }
        }
    }
}

/// Reports a link that carries several networks and is not a trunk.
pub(super) fn trunking_needed(site: &SiteView<'_>, out: &mut RuleOutput) {
    for link in site.topology().links.iter().filter(|link| !link.is_trunk) {
        let Some((first, others)) = link.allowed.split_first() else { continue };
        // An IPv4 and an IPv6 network can share an untagged link.
        let network = |name: &str| site.topology().network(name);
        let is_pair = |other: &str| {
            others.len() == 1
                && network(first.value)
                    .zip(network(other))
                    .is_some_and(|(a, b)| a.is_other_family(b) && a.vlan.is_none() && b.vlan.is_none())
        };
        if let Some(second) = others.first().filter(|second| !is_pair(second.value)) {
            let message = format!("link {} carries {} networks, but is no trunk", quote(link.name), link.allowed.len());
            let help = "add trunking: {mode: 802.1q}, or leave one network";
            out.add(second.span, Code::TrunkingNeeded.finding(message).help(help));
        }
    }
}

/// Reports a network with a VLAN on a link that is not a trunk.
pub(super) fn tagged_without_trunk(site: &SiteView<'_>, out: &mut RuleOutput) {
    for link in site.topology().links.iter().filter(|link| !link.is_trunk) {
        // Several networks without a trunk are a different finding.
        let [only] = link.allowed.as_slice() else { continue };
        let Some(vlan) = site.topology().network(only.value).and_then(|network| network.vlan) else { continue };
        let message = format!(
            "network {} has VLAN {}, but its link {} carries no VLANs",
            quote(only.value),
            vlan.value,
            quote(link.name)
        );
        let finding = Code::TaggedWithoutTrunk
            .finding(message)
            .help("add trunking: {mode: 802.1q} to the link, or remove the network's vlan");
        out.add_with_note(vlan.span, finding, "the link carries the network here", only.span);
    }
}

/// Reports a trunk with more than one untagged network.
pub(super) fn several_untagged(site: &SiteView<'_>, out: &mut RuleOutput) {
    for link in site.topology().links.iter().filter(|link| link.is_trunk) {
        let default = link.default_network.filter(|default| link.allows(default.value));
        let is_default = |name: &str| default.is_some_and(|default| default.value == name);
        let others = link.allowed.iter().copied().filter(|allowed| !is_default(allowed.value));
        let others = others.filter(|other| site.topology().network(other.value).is_some_and(|it| it.vlan.is_none()));
        // The default network is untagged, even if it has a VLAN elsewhere.
        let mut untagged: Vec<(Span, &NetworkView<'_>)> = Vec::new();
        for place in default.into_iter().chain(others) {
            let Some(network) = site.topology().network(place.value) else { continue };
            // An IPv4 and an IPv6 network can share an untagged link.
            let clash = untagged.iter().find(|(_, other)| !network.is_other_family(other));
            match clash {
                Some((at, other)) => {
                    let message = format!(
                        "networks {} and {} are both untagged on link {}",
                        quote(other.name),
                        quote(network.name),
                        quote(link.name)
                    );
                    let finding =
                        Code::SeveralUntagged.finding(message).help("give one of them a vlan, or take it off the link");
                    out.add_with_note(place.span, finding, "the first one is here", *at);
                }
                // The list therefore has at most two networks.
                None => untagged.push((place.span, network)),
            }
        }
    }
}

/// Reports a default network that its link does not carry.
pub(super) fn default_not_allowed(site: &SiteView<'_>, out: &mut RuleOutput) {
    for link in &site.topology().links {
        if let Some(default) = link.default_network.filter(|default| !link.allows(default.value)) {
            let message = format!(
                "the default network {} is not among the allowed networks of link {}",
                quote(default.value),
                quote(link.name)
            );
            let help = "add it to allowed_networks; until then no interface on this link may be in it";
            out.add(default.span, Code::DefaultNotAllowed.finding(message).help(help));
        }
    }
}

/// Reports two networks of the same IP version that share a VLAN on one link.
pub(super) fn vlan_twice(site: &SiteView<'_>, out: &mut RuleOutput) {
    for link in site.topology().links.iter().filter(|link| link.is_trunk) {
        let mut first = HashMap::new();
        for network in link.allowed.iter().filter_map(|name| site.topology().network(name.value)) {
            let (Some(vlan), Some(cidr)) = (network.vlan, network.cidr) else { continue };
            let key = (vlan.value, cidr.value.address.is_ipv4());
            let (other, at) = *first.entry(key).or_insert((network, vlan.span));
            if other.name != network.name {
                let message = format!(
                    "networks {} and {} have the same VLAN {} on link {}",
                    quote(other.name),
                    quote(network.name),
                    vlan.value,
                    quote(link.name)
                );
                let finding = Code::VlanTwice
                    .finding(message)
                    .help("give one of them another number: on one VLAN they are one network");
                out.add_with_note(vlan.span, finding, "the first one is here", at);
            }
        }
    }
}
