//! Networks and links, as rules read them.

use std::net::IpAddr;

use super::Spanned;
use crate::rules::DocumentView;
use crate::span::Span;
use crate::types::Cidr;
use crate::yaml::Node;

#[derive(Debug)]
pub(crate) struct Network<'d> {
    pub name: &'d str,
    pub at: Span,
    pub cidr: Option<Spanned<Cidr>>,
    /// The field exists; it may be malformed.
    pub has_cidr: bool,
    pub vlan: Option<Spanned<i64>>,
    pub mtu: Option<Spanned<i64>>,
    pub routedomain: Option<Spanned<&'d str>>,
    pub ranges: Vec<Range<'d>>,
    pub routes: Vec<Route<'d>>,

    pub domain_routes: Vec<DomainRoute<'d>>,
    /// The relay's own address.
    pub relay: Option<Spanned<IpAddr>>,
}

/// A range of a network's addresses. Missing fields are reported by a rule.
#[derive(Debug)]
pub(crate) struct Range<'d> {
    pub kind: Option<RangeKind>,
    pub start: Option<Spanned<IpAddr>>,
    pub end: Option<Spanned<IpAddr>>,
    pub node: &'d Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RangeKind {
    Static,
    Dhcp,
    Reserved,
}

/// Route to a subnet.
#[derive(Debug)]
pub(crate) struct Route<'d> {
    pub subnet: Option<Spanned<Cidr>>,
    pub gateway: Option<Spanned<IpAddr>>,
    pub metric: Option<i64>,
    pub node: &'d Node,
}

/// Route to the networks of a routing domain.
#[derive(Debug)]
pub(crate) struct DomainRoute<'d> {
    pub domain: Option<Spanned<&'d str>>,
    pub gateway: Option<Spanned<IpAddr>>,
    pub metric: Option<i64>,
    pub node: &'d Node,
}

impl<'d> Network<'d> {
    pub(super) fn read(thing: &DocumentView<'d>) -> Self {
        let tree = thing.tree;
        let items = |key: &str| tree.get(key).and_then(Node::items).unwrap_or_default().iter();
        Network {
            name: thing.name,
            at: thing.at,
            cidr: Spanned::cidr(tree, "cidr"),
            has_cidr: tree.get("cidr").is_some(),
            vlan: Spanned::integer(tree, "vlan"),
            mtu: Spanned::integer(tree, "mtu"),
            routedomain: Spanned::text(tree, "routedomain"),
            ranges: items("ranges").map(Range::read).collect(),
            routes: items("routes").map(Route::read).collect(),
            domain_routes: items("domain_routes").map(DomainRoute::read).collect(),
            relay: tree.get("dhcp_relay").and_then(|relay| Spanned::address(relay, "self_ip")),
        }
    }

    /// The gateways of all its routes.
    pub(crate) fn gateways(&self) -> impl Iterator<Item = Spanned<IpAddr>> {
        let of_routes = self.routes.iter().filter_map(|route| route.gateway);
        of_routes.chain(self.domain_routes.iter().filter_map(|route| route.gateway))
    }

    pub(crate) fn has_ranges(&self, kind: RangeKind) -> bool {
        self.ranges.iter().any(|range| range.kind == Some(kind))
    }

    /// Ranges that contain an address.
    pub(crate) fn ranges_of(&self, address: IpAddr) -> impl Iterator<Item = &Range<'d>> {
        self.ranges.iter().filter(move |range| range.contains(address))
    }

    /// A range of this kind that contains the address, unless a static range contains it too. Overlapping ranges are
    /// reported by a rule.
    pub(crate) fn only_range(&self, address: IpAddr, kind: RangeKind) -> Option<&Range<'d>> {
        let is_static = self.ranges_of(address).any(|range| range.kind == Some(RangeKind::Static));
        self.ranges_of(address).find(|range| !is_static && range.kind == Some(kind))
    }

    /// Reports whether one network is IPv4 and the other IPv6: these can share an untagged link.
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
        let (start, end) = (Spanned::address(node, "start"), Spanned::address(node, "end"));
        Range { kind, start, end, node }
    }

    /// First and last address, if they are of one family and in order.
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
            subnet: Spanned::cidr(node, "subnet"),
            gateway: Spanned::address(node, "gateway"),
            metric: Spanned::integer(node, "metric").map(|metric| metric.value),
            node,
        }
    }
}

impl<'d> DomainRoute<'d> {
    fn read(node: &'d Node) -> Self {
        DomainRoute {
            domain: Spanned::text(node, "routedomain"),
            gateway: Spanned::address(node, "gateway"),
            metric: Spanned::integer(node, "metric").map(|metric| metric.value),
            node,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Link<'d> {
    pub name: &'d str,
    pub at: Span,
    pub mtu: Option<Spanned<i64>>,
    /// The section `bonding`.
    pub bonding: Option<&'d Node>,
    pub is_trunk: bool,
    pub default_network: Option<Spanned<&'d str>>,
    pub allowed: Vec<Spanned<&'d str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BondMode {
    Disabled,
    Lacp,
    ActiveBackup,
    BalanceRr,
}

impl<'d> Link<'d> {
    pub(super) fn read(thing: &DocumentView<'d>) -> Self {
        let trunking = thing.get("trunking");
        Link {
            name: thing.name,
            at: thing.at,
            mtu: Spanned::integer(thing.tree, "mtu"),
            bonding: thing.get("bonding"),
            is_trunk: trunking.and_then(|trunking| trunking.get("mode")?.text()) == Some("802.1q"),
            default_network: trunking.and_then(|trunking| Spanned::text(trunking, "default_network")),
            allowed: Spanned::texts(thing.tree, "allowed_networks"),
        }
    }

    /// Bonding mode; `Disabled` if the section is absent, none if the mode is unknown, which was reported.
    pub(crate) fn bond_mode(&self) -> Option<BondMode> {
        match self.bonding.and_then(|bonding| bonding.get("mode")).map(Node::text) {
            None | Some(Some("disabled")) => Some(BondMode::Disabled),
            Some(Some("802.3ad")) => Some(BondMode::Lacp),
            Some(Some("active-backup")) => Some(BondMode::ActiveBackup),
            Some(Some("balance-rr")) => Some(BondMode::BalanceRr),
            Some(_) => None,
        }
    }

    pub(crate) fn allows(&self, network: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed.value == network)
    }

    /// An option of the section `bonding`.
    pub(crate) fn bonding_option(&self, key: &str) -> Option<&'d Node> {
        self.bonding?.get(key)
    }

    /// A number of the section `bonding`.
    pub(crate) fn bonding_integer(&self, key: &str) -> Option<Spanned<i64>> {
        Spanned::integer(self.bonding?, key)
    }
}

impl BondMode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            BondMode::Disabled => "disabled",
            BondMode::Lacp => "802.3ad",
            BondMode::ActiveBackup => "active-backup",
            BondMode::BalanceRr => "balance-rr",
        }
    }
}
