//! Networks, links, interfaces and addresses, as rules read them.

use std::collections::HashSet;
use std::net::IpAddr;

use crate::file_text::Span;
use crate::rules::{DocumentView, SiteView};
use crate::types::{Cidr, address};
use crate::yaml::YamlNode;

use super::Spanned;

#[derive(Debug)]
pub(crate) struct NetworkView<'d> {
    pub name: &'d str,
    pub at: Span,
    pub cidr: Option<Spanned<Cidr>>,
    /// The field exists; it may be malformed.
    pub has_cidr: bool,
    pub vlan: Option<Spanned<i64>>,
    pub mtu: Option<Spanned<i64>>,
    pub routedomain: Option<Spanned<&'d str>>,
    pub ranges: Vec<RangeView<'d>>,
    pub routes: Vec<RouteView<'d>>,

    pub domain_routes: Vec<DomainRoute<'d>>,
    /// The relay's own address.
    pub relay: Option<Spanned<IpAddr>>,
}

/// A range of a network's addresses. Missing fields are reported by a rule.
#[derive(Debug)]
pub(crate) struct RangeView<'d> {
    pub kind: Option<RangeKind>,
    pub start: Option<Spanned<IpAddr>>,
    pub end: Option<Spanned<IpAddr>>,
    pub node: &'d YamlNode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RangeKind {
    Static,
    Dhcp,
    Reserved,
}

/// Route to a subnet.
#[derive(Debug)]
pub(crate) struct RouteView<'d> {
    pub subnet: Option<Spanned<Cidr>>,
    pub gateway: Option<Spanned<IpAddr>>,
    pub metric: Option<i64>,
    pub node: &'d YamlNode,
}

/// Route to the networks of a routing domain.
#[derive(Debug)]
pub(crate) struct DomainRoute<'d> {
    pub domain: Option<Spanned<&'d str>>,
    pub gateway: Option<Spanned<IpAddr>>,
    pub metric: Option<i64>,
    pub node: &'d YamlNode,
}

impl<'d> NetworkView<'d> {
    pub(super) fn read(thing: &DocumentView<'d>) -> Self {
        let tree = thing.tree;
        let items = |key: &str| tree.get(key).and_then(YamlNode::items).unwrap_or_default().iter();
        NetworkView {
            name: thing.name,
            at: thing.at,
            cidr: Spanned::cidr(tree, "cidr"),
            has_cidr: tree.get("cidr").is_some(),
            vlan: Spanned::integer(tree, "vlan"),
            mtu: Spanned::integer(tree, "mtu"),
            routedomain: Spanned::text(tree, "routedomain"),
            ranges: items("ranges").map(RangeView::read).collect(),
            routes: items("routes").map(RouteView::read).collect(),
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
    pub(crate) fn ranges_of(&self, address: IpAddr) -> impl Iterator<Item = &RangeView<'d>> {
        self.ranges.iter().filter(move |range| range.contains(address))
    }

    /// A range of this kind that contains the address, unless a static range contains it too. Overlapping ranges are
    /// reported by a rule.
    pub(crate) fn only_range(&self, address: IpAddr, kind: RangeKind) -> Option<&RangeView<'d>> {
        let is_static = self.ranges_of(address).any(|range| range.kind == Some(RangeKind::Static));
        self.ranges_of(address).find(|range| !is_static && range.kind == Some(kind))
    }

    /// Reports whether one network is IPv4 and the other IPv6: these can share an untagged link.
    pub(crate) fn is_other_family(&self, other: &NetworkView<'_>) -> bool {
        self.cidr.zip(other.cidr).is_some_and(|(a, b)| a.value.address.is_ipv4() != b.value.address.is_ipv4())
    }
}

impl<'d> RangeView<'d> {
    fn read(node: &'d YamlNode) -> Self {
        let kind = match node.get("type").and_then(YamlNode::text) {
            Some("static") => Some(RangeKind::Static),
            Some("dhcp") => Some(RangeKind::Dhcp),
            Some("reserved") => Some(RangeKind::Reserved),
            Some(_) | None => None,
        };
        let (start, end) = (Spanned::address(node, "start"), Spanned::address(node, "end"));
        RangeView { kind, start, end, node }
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

impl<'d> RouteView<'d> {
    fn read(node: &'d YamlNode) -> Self {
        RouteView {
            subnet: Spanned::cidr(node, "subnet"),
            gateway: Spanned::address(node, "gateway"),
            metric: Spanned::integer(node, "metric").map(|metric| metric.value),
            node,
        }
    }
}

impl<'d> DomainRoute<'d> {
    fn read(node: &'d YamlNode) -> Self {
        DomainRoute {
            domain: Spanned::text(node, "routedomain"),
            gateway: Spanned::address(node, "gateway"),
            metric: Spanned::integer(node, "metric").map(|metric| metric.value),
            node,
        }
    }
}

#[derive(Debug)]
pub(crate) struct LinkView<'d> {
    pub name: &'d str,
    pub at: Span,
    pub mtu: Option<Spanned<i64>>,
    /// The section `bonding`.
    pub bonding: Option<&'d YamlNode>,
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

impl<'d> LinkView<'d> {
    pub(super) fn read(thing: &DocumentView<'d>) -> Self {
        let trunking = thing.get("trunking");
        LinkView {
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
        match self.bonding.and_then(|bonding| bonding.get("mode")).map(YamlNode::text) {
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
    pub(crate) fn bonding_option(&self, key: &str) -> Option<&'d YamlNode> {
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

#[derive(Debug)]
pub(crate) struct InterfaceView<'d> {
    pub name: &'d str,
    pub at: Span,
    pub link: Option<Spanned<&'d str>>,
    pub devices: Vec<Spanned<&'d str>>,
    pub networks: Vec<Spanned<&'d str>>,
    pub mtu: Option<Spanned<i64>>,
}

/// The interfaces under a node's key `interfaces`.
pub(crate) fn interfaces(node: &YamlNode) -> impl Iterator<Item = InterfaceView<'_>> {
    let entries = node.map().map(|map| map.entries()).unwrap_or_default();
    entries.iter().map(|entry| InterfaceView {
        name: &entry.key.text,
        at: entry.key.span,
        link: Spanned::text(&entry.value, "device_link"),
        devices: Spanned::texts(&entry.value, "devices"),
        networks: Spanned::texts(&entry.value, "networks"),
        mtu: Spanned::integer(&entry.value, "mtu"),
    })
}

/// Networks of all interfaces under a node's key `interfaces`.
pub(crate) fn interface_networks(node: &YamlNode) -> impl Iterator<Item = Spanned<&str>> {
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
    pub written: Option<&'d YamlNode>,
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
    pub network: &'s NetworkView<'s>,
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
    let items = node.get("addresses").and_then(YamlNode::items).unwrap_or_default();
    items.iter().filter_map(|item| {
        Some(AddressEntry { network: Spanned::text(item, "network")?, written: item.get("address"), span: item.span })
    })
}

/// Static addresses of a node whose network exists.
pub(crate) fn node_addresses<'s>(
    site: &'s SiteView<'_>,
    node: &DocumentView<'s>,
) -> impl Iterator<Item = NodeAddress<'s>> {
    addresses(node).filter_map(|given| {
        let network = site.topology().network(given.network.value)?;
        Some(NodeAddress { address: given.address()?, network, network_at: given.network.span })
    })
}
