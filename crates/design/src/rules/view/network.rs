//! A network, as rules read it.

use std::net::IpAddr;

use super::Placed;
use crate::rules::Thing;
use crate::span::Span;
use crate::types::Cidr;
use crate::yaml::Node;

#[derive(Debug)]
pub(crate) struct Network<'d> {
    pub name: &'d str,
    pub at: Span,
    pub cidr: Option<Placed<Cidr>>,
    /// Whether a CIDR is there: it may be malformed, which has been reported.
    pub has_cidr: bool,
    pub vlan: Option<Placed<i64>>,
    pub mtu: Option<Placed<i64>>,
    pub routedomain: Option<Placed<&'d str>>,
    pub ranges: Vec<Range<'d>>,
    pub routes: Vec<Route<'d>>,

    pub domain_routes: Vec<DomainRoute<'d>>,
    /// The relay's own address.
    pub relay: Option<Placed<IpAddr>>,
}

/// A part of a network's addresses. What is missing is a finding of its own.
#[derive(Debug)]
pub(crate) struct Range<'d> {
    pub kind: Option<RangeKind>,
    pub start: Option<Placed<IpAddr>>,
    pub end: Option<Placed<IpAddr>>,
    pub node: &'d Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RangeKind {
    Static,
    Dhcp,
    Reserved,
}

/// How one subnet is reached.
#[derive(Debug)]
pub(crate) struct Route<'d> {
    pub subnet: Option<Placed<Cidr>>,
    pub gateway: Option<Placed<IpAddr>>,
    pub metric: Option<i64>,
    pub node: &'d Node,
}

/// How the networks of a routing domain are reached.
#[derive(Debug)]
pub(crate) struct DomainRoute<'d> {
    pub domain: Option<Placed<&'d str>>,
    pub gateway: Option<Placed<IpAddr>>,
    pub metric: Option<i64>,
    pub node: &'d Node,
}

impl<'d> Network<'d> {
    pub(super) fn read(thing: &Thing<'d>) -> Self {
        let tree = thing.tree;
        let items = |key: &str| tree.get(key).and_then(Node::items).unwrap_or_default().iter();
        Network {
            name: thing.name,
            at: thing.at,
            cidr: Placed::cidr(tree, "cidr"),
            has_cidr: tree.get("cidr").is_some(),
            vlan: Placed::integer(tree, "vlan"),
            mtu: Placed::integer(tree, "mtu"),
            routedomain: Placed::text(tree, "routedomain"),
            ranges: items("ranges").map(Range::read).collect(),
            routes: items("routes").map(Route::read).collect(),
            domain_routes: items("domain_routes").map(DomainRoute::read).collect(),
            relay: tree.get("dhcp_relay").and_then(|relay| Placed::address(relay, "self_ip")),
        }
    }

    /// The gateways of all its routes.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = Placed<IpAddr>> {
        let of_routes = self.routes.iter().filter_map(|route| route.gateway);
        of_routes.chain(self.domain_routes.iter().filter_map(|route| route.gateway))
    }

    /// Whether there are ranges of a kind.
    pub(crate) fn has_ranges(&self, kind: RangeKind) -> bool {
        self.ranges.iter().any(|range| range.kind == Some(kind))
    }

    /// The ranges that an address is in.
    pub(crate) fn ranges_of(&self, address: IpAddr) -> impl Iterator<Item = &Range<'d>> {
        self.ranges.iter().filter(move |range| range.contains(address))
    }

    /// A range of a kind that an address is in, if it is in none of the static ones as well: that those overlap is a
    /// finding of its own.
    pub(crate) fn only_range(&self, address: IpAddr, kind: RangeKind) -> Option<&Range<'d>> {
        let is_static = self.ranges_of(address).any(|range| range.kind == Some(RangeKind::Static));
        self.ranges_of(address).find(|range| !is_static && range.kind == Some(kind))
    }

    /// Whether two networks can share a wire without being told apart: one is IPv4, and the other IPv6.
    pub(crate) fn is_other_family(&self, other: &Network<'_>) -> bool {
        self.cidr.zip(other.cidr).is_some_and(|(a, b)| a.value.address.is_ipv4() != b.value.address.is_ipv4())
    }
}

impl<'d> Range<'d> {
    fn read(node: &'d Node) -> Self {
        let kind = match node.get("type").and_then(Node::text) {
            Some("static") => Some(RangeKind::Static),
            Some("dhcp") => Some(RangeKind::Dhcp),
            Some("reserved") => Some(RangeKind::Reserved),
            Some(_) | None => None,
        };
        let (start, end) = (Placed::address(node, "start"), Placed::address(node, "end"));
        Range { kind, start, end, node }
    }

    /// Its first and last address, if they are of one family and in order.
    pub(crate) fn bounds(&self) -> Option<(IpAddr, IpAddr)> {
        let (start, end) = (self.start?.value, self.end?.value);
        (start.is_ipv4() == end.is_ipv4() && start <= end).then_some((start, end))
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.bounds()
            .is_some_and(|(start, end)| start.is_ipv4() == address.is_ipv4() && (start..=end).contains(&address))
    }
}

impl RangeKind {
    pub(super) const ALL: [RangeKind; 3] = [RangeKind::Static, RangeKind::Dhcp, RangeKind::Reserved];

    pub(crate) fn word(self) -> &'static str {
        match self {
            RangeKind::Static => "static",
            RangeKind::Dhcp => "dhcp",
            RangeKind::Reserved => "reserved",
        }
    }
}

impl<'d> Route<'d> {
    fn read(node: &'d Node) -> Self {
        Route {
            subnet: Placed::cidr(node, "subnet"),
            gateway: Placed::address(node, "gateway"),
            metric: Placed::integer(node, "metric").map(|metric| metric.value),
            node,
        }
    }
}

impl<'d> DomainRoute<'d> {
    fn read(node: &'d Node) -> Self {
        DomainRoute {
            domain: Placed::text(node, "routedomain"),
            gateway: Placed::address(node, "gateway"),
            metric: Placed::integer(node, "metric").map(|metric| metric.value),
            node,
        }
    }
}
