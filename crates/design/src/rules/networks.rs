//! Rules for networks: CIDRs, ranges, routes, gateways and DHCP relays.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::finding::{Code, quote};
use crate::kinds::Kind;
use crate::rules::view::{NetworkCidr, RangeOverlap, overlapping, overlaps};
use crate::rules::{RuleOutput, SiteView};
use muster_core::spelling;

/// Reports a network or a subnet written with the address of a host: bits beyond the prefix are set.
pub(super) fn host_bits_set(site: &SiteView<'_>, out: &mut RuleOutput) {
    for network in &site.topology().networks {
        let subnets = network.routes.iter().filter_map(|route| route.subnet);
        for cidr in network.cidr.into_iter().chain(subnets) {
            let canonical = cidr.value.canonical();
            if canonical != cidr.value {
                let message = format!("{} is the address of a host, not of a network", quote(&cidr.value.to_string()));
                out.add(cidr.span, Code::HostBitsSet.finding(message).expected(format!("expected {canonical}")));
            }
        }
    }
}

/// Fields that need a CIDR.
const ADDRESS_FIELDS: &[&str] = &["ranges", "routes", "domain_routes", "dhcp_relay"];

/// Reports a network that has ranges, routes or a relay, but no CIDR.
pub(super) fn no_cidr(site: &SiteView<'_>, out: &mut RuleOutput) {
    for network in site.all(Kind::Network).iter().filter(|network| network.get("cidr").is_none()) {
        if let Some(key) = ADDRESS_FIELDS.iter().find(|key| network.get(key).is_some()) {
            let message = format!("network {} has {}, but no \"cidr\"", quote(network.name), quote(key));
            let help = "add its address range, for instance: cidr: 10.1.0.0/24";
            out.add(network.at, Code::NoCidr.finding(message).help(help));
        }
    }
}

/// Reports networks of one routing domain that share addresses: a router could not choose between them.
pub(super) fn networks_overlap(site: &SiteView<'_>, out: &mut RuleOutput) {
    let mut domains: BTreeMap<&str, Vec<NetworkCidr<'_, '_>>> = BTreeMap::new();
    for network in &site.topology().networks {
        if let (Some(domain), Some(cidr)) = (network.routedomain, network.cidr) {
            domains.entry(domain.value).or_default().push((network, cidr));
        }
    }
    for (domain, members) in domains {
        for ((wider, wider_cidr), (network, cidr)) in overlapping(members) {
            let message = format!(
                "networks {} and {} of routing domain {} have addresses in common",
                quote(wider.name),
                quote(network.name),
                quote(domain)
            );
            let finding = Code::NetworksOverlap
                .finding(message)
                .help("give one of them other addresses, or put them into different routing domains");
            out.add_with_note(cidr.span, finding, "the other one is here", wider_cidr.span);
        }
    }
}

/// Reports a range without a type or without an end.
pub(super) fn range_incomplete(site: &SiteView<'_>, out: &mut RuleOutput) {
    for network in &site.topology().networks {
        for range in &network.ranges {
            let missing: Vec<&str> = ["type", "end"].into_iter().filter(|key| range.node.get(key).is_none()).collect();
            if range.node.map().is_some() && !missing.is_empty() {
                let missing = missing.iter().map(|key| quote(key)).collect::<Vec<_>>().join(" and no ");
                let message = format!("a range of network {} has no {missing}", quote(network.name));
                let help = "a range is written {type: static, start: 10.1.0.10, end: 10.1.0.99}";
                out.add(range.node.span, Code::RangeIncomplete.finding(message).help(help));
            }
        }
    }
}

/// Reports a range that ends before it starts, or that mixes IPv4 and IPv6.
pub(super) fn range_backwards(site: &SiteView<'_>, out: &mut RuleOutput) {
    for network in &site.topology().networks {
        for range in &network.ranges {
            let (Some(start), Some(end)) = (range.start, range.end) else { continue };
            let (message, help) = if start.value.is_ipv4() != end.value.is_ipv4() {
                let message = format!("the range starts at {} and ends at {}", start.value, end.value);
                (message, "start and end are both IPv4, or both IPv6")
            } else if start.value > end.value {
                (format!("the range ends at {}, before its start {}", end.value, start.value), "swap start and end")
            } else {
                continue;
            };
            out.add(end.span, Code::RangeBackwards.finding(message).help(help));
        }
    }
}

/// Reports a range that is not inside its network.
pub(super) fn range_outside(site: &SiteView<'_>, out: &mut RuleOutput) {
    for network in &site.topology().networks {
        let Some(cidr) = network.cidr else { continue };
        for range in &network.ranges {
            // The first end that is outside is enough: most often it is both.
            let mut ends = range.start.into_iter().chain(range.end);
            if let Some(outside) = ends.find(|end| !cidr.value.contains(end.value)) {
                let message = format!("{} is not in network {}", outside.value, quote(network.name));
                let finding =
                    Code::RangeOutside.finding(message).expected(format!("expected an address of {}", cidr.value));
                out.add_with_note(outside.span, finding, "the network's addresses are these", cidr.span);
            }
        }
    }
}

/// Reports ranges of different types that share addresses.
pub(super) fn ranges_overlap(site: &SiteView<'_>, out: &mut RuleOutput) {
    for network in &site.topology().networks {
        for RangeOverlap { range, with } in overlaps(network).filter(|overlap| overlap.range.kind != overlap.with.kind)
        {
            let (Some(kind), Some(with_kind), Some(start)) = (range.kind, with.kind, range.start) else { continue };
            let message = format!(
                "a {} and a {} range of network {} have addresses in common",
                with_kind.word(),
                kind.word(),
                quote(network.name)
            );
            let finding = Code::RangesOverlap.finding(message).help("move the start or the end of one of them");
            out.add_with_note(start.span, finding, "the other one is here", with.node.span);
        }
    }
}

/// Reports ranges of the same type that share addresses.
pub(super) fn ranges_repeat(site: &SiteView<'_>, out: &mut RuleOutput) {
    for network in &site.topology().networks {
        for RangeOverlap { range, with } in overlaps(network).filter(|overlap| overlap.range.kind == overlap.with.kind)
        {
            let (Some(kind), Some(start)) = (range.kind, range.start) else { continue };
            let message =
                format!("two {} ranges of network {} have addresses in common", kind.word(), quote(network.name));
            let finding = Code::RangesRepeat.finding(message).help("make one range of them, or move one");
            out.add_with_note(start.span, finding, "the other one is here", with.node.span);
        }
    }
}

/// Reports a route without a gateway.
pub(super) fn route_without_gateway(site: &SiteView<'_>, out: &mut RuleOutput) {
    for network in &site.topology().networks {
        let routes = network.routes.iter().map(|route| route.node);
        for route in routes.chain(network.domain_routes.iter().map(|route| route.node)) {
            if route.map().is_some() && route.get("gateway").is_none() {
                let message = format!("a route of network {} has no gateway", quote(network.name));
                let help = "name the router, an address of the network: gateway: 10.1.0.1";
                out.add(route.span, Code::RouteWithoutGateway.finding(message).help(help));
            }
        }
    }
}

/// Reports a gateway that is not in the network of its route.
pub(super) fn gateway_outside(site: &SiteView<'_>, out: &mut RuleOutput) {
    for network in &site.topology().networks {
        let Some(cidr) = network.cidr else { continue };
        for gateway in network.gateways() {
            if !cidr.value.contains(gateway.value) && !is_link_local(gateway.value) {
                let message = format!("the gateway {} is not in network {}", gateway.value, quote(network.name));
                let finding =
                    Code::GatewayOutside.finding(message).expected(format!("expected an address of {}", cidr.value));
                out.add_with_note(gateway.span, finding, "the network's addresses are these", cidr.span);
            }
        }
    }
}

/// IPv6 routers usually have a link-local address, such as `fe80::1`.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Reports a gateway that has the network address or the broadcast address.
pub(super) fn gateway_of_no_host(site: &SiteView<'_>, out: &mut RuleOutput) {
    for network in &site.topology().networks {
        let Some(cidr) = network.cidr else { continue };
        for gateway in network.gateways().filter(|gateway| cidr.value.is_of_no_host(gateway.value)) {
            let what = if gateway.value == cidr.value.network() { "the network itself" } else { "all hosts at once" };
            let message = format!("{} is the address of {what} in network {}", gateway.value, quote(network.name));
            let finding = Code::GatewayOfNoHost.finding(message).help("name the address that the router has");
            out.add_with_note(gateway.span, finding, "the network's addresses are these", cidr.span);
        }
    }
}

/// Reports an IPv6 subnet behind an IPv4 gateway. The opposite is allowed by RFC 8950.
pub(super) fn gateway_of_other_family(site: &SiteView<'_>, out: &mut RuleOutput) {
    let routes = site.topology().networks.iter().flat_map(|network| &network.routes);
    for (subnet, gateway) in routes.filter_map(|route| route.subnet.zip(route.gateway)) {
        if subnet.value.address.is_ipv6() && gateway.value.is_ipv4() {
            let message = format!("{} cannot be reached through the IPv4 gateway {}", subnet.value, gateway.value);
            let finding = Code::GatewayOfOtherFamily.finding(message).expected("expected an IPv6 address");
            out.add_with_note(gateway.span, finding, "what is to be reached", subnet.span);
        }
    }
}

/// Reports a route to a routing domain that has no other network.
pub(super) fn empty_routedomain(site: &SiteView<'_>, out: &mut RuleOutput) {
    let networks = &site.topology().networks;
    for network in networks {
        for domain in network.domain_routes.iter().filter_map(|route| route.domain) {
            if site.topology().members(domain.value).all(|member| member.name == network.name) {
                let message = format!("no other network is in routing domain {}", quote(domain.value));
                let known = networks.iter().filter_map(|network| Some(network.routedomain?.value));
                let near = spelling::nearest(domain.value, known.filter(|known| *known != domain.value));
                let help = match near {
                    Some(near) => format!("did you mean {}?", quote(near)),
                    None => "set \"routedomain\" in the networks that belong to it, or remove the route".to_owned(),
                };
                out.add(domain.span, Code::EmptyRoutedomain.finding(message).help(help));
            }
        }
    }
}

/// Reports a DHCP relay whose address is not in the network that it serves. The DHCP server identifies the network by
/// it.
pub(super) fn relay_outside(site: &SiteView<'_>, out: &mut RuleOutput) {
    for network in &site.topology().networks {
        let (Some(cidr), Some(relay)) = (network.cidr, network.relay) else { continue };
        if !cidr.value.contains(relay.value) {
            let message = format!("the DHCP relay's address {} is not in network {}", relay.value, quote(network.name));
            let finding =
                Code::RelayOutside.finding(message).expected(format!("expected an address of {}", cidr.value));
            out.add_with_note(relay.span, finding, "the network's addresses are these", cidr.span);
        }
    }
}
