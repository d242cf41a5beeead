//! Networks, links and racks of a design, indexed once for the rules of all nodes; and overlaps between them.

use std::collections::HashMap;

use crate::kinds::Kind;
use crate::rules::SiteView;
use crate::rules::view::{LinkView, NetworkView, RangeKind, RangeView, Spanned};
use crate::types::Cidr;
use crate::yaml::YamlNode;

#[derive(Debug, Default)]
pub(crate) struct Topology<'d> {
    /// By name, in order.
    pub networks: Vec<NetworkView<'d>>,
    pub links: Vec<LinkView<'d>>,
    network_by_name: HashMap<&'d str, usize>,
    link_by_name: HashMap<&'d str, usize>,
    /// Link of a network: the first by name, if there are several.
    carriers: HashMap<&'d str, usize>,
    /// The networks of each routing domain.
    domains: HashMap<&'d str, Vec<usize>>,
    /// Racks of the networks that are local to racks.
    racks: HashMap<&'d str, Vec<&'d str>>,
}

impl<'d> Topology<'d> {
    pub(crate) fn new(site: &SiteView<'d>) -> Self {
        let networks: Vec<NetworkView<'d>> = site.all(Kind::Network).iter().map(NetworkView::read).collect();
        let links: Vec<LinkView<'d>> = site.all(Kind::NetworkLink).iter().map(LinkView::read).collect();
        let network_by_name = networks.iter().enumerate().map(|(at, network)| (network.name, at)).collect();
        let link_by_name = links.iter().enumerate().map(|(at, link)| (link.name, at)).collect();
        let mut carriers = HashMap::new();
        for (at, link) in links.iter().enumerate() {
            for network in &link.allowed {
                carriers.entry(network.value).or_insert(at);
            }
        }
        let mut domains: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, network) in networks.iter().enumerate() {
            if let Some(domain) = network.routedomain {
                domains.entry(domain.value).or_default().push(at);
            }
        }
        let mut racks: HashMap<&str, Vec<&str>> = HashMap::new();
        for rack in site.all(Kind::Rack) {
            let local = rack.get("local_networks").and_then(YamlNode::items).unwrap_or_default();
            for network in local.iter().filter_map(YamlNode::text) {
                racks.entry(network).or_default().push(rack.name);
            }
        }
        Topology { networks, links, network_by_name, link_by_name, carriers, domains, racks }
    }

    pub(crate) fn network(&self, name: &str) -> Option<&NetworkView<'d>> {
        self.networks.get(*self.network_by_name.get(name)?)
    }

    pub(crate) fn link(&self, name: &str) -> Option<&LinkView<'d>> {
        self.links.get(*self.link_by_name.get(name)?)
    }

    /// The link that carries a network.
    pub(crate) fn carrier(&self, network: &str) -> Option<&LinkView<'d>> {
        self.links.get(*self.carriers.get(network)?)
    }

    /// Racks that a network is local to; empty if it is not local.
    pub(crate) fn racks_of(&self, network: &str) -> &[&'d str] {
        self.racks.get(network).map(Vec::as_slice).unwrap_or_default()
    }

    /// The networks of a routing domain, by name.
    pub(crate) fn members(&self, domain: &str) -> impl Iterator<Item = &NetworkView<'d>> {
        self.domains.get(domain).into_iter().flatten().filter_map(|at| self.networks.get(*at))
    }
}

/// A network with its CIDR, and the span to report.
pub(crate) type NetworkCidr<'n, 'd> = (&'n NetworkView<'d>, Spanned<Cidr>);

/// Pairs of overlapping networks: the widest of each group with each of the rest.
pub(crate) fn overlapping<'n, 'd>(
    mut networks: Vec<NetworkCidr<'n, 'd>>,
) -> Vec<(NetworkCidr<'n, 'd>, NetworkCidr<'n, 'd>)> {
    // Two networks are disjoint, or one contains the other. A wider network sorts before those inside it, so comparing
    // with the last network that is not inside another is enough.
    networks.sort_by_key(|(network, cidr)| (cidr.value.network(), cidr.value.prefix, network.name));
    let mut found = Vec::new();
    let mut widest: Option<NetworkCidr<'n, 'd>> = None;
    for network in networks {
        match widest {
            Some(wider) if wider.1.value.overlaps(network.1.value) => found.push((wider, network)),
            Some(_) | None => widest = Some(network),
        }
    }
    found
}

/// A range and an earlier range that it overlaps.
#[derive(Debug)]
pub(crate) struct RangeOverlap<'n, 'd> {
    pub range: &'n RangeView<'d>,
    pub with: &'n RangeView<'d>,
}

/// At most one overlap of each range with each type of range. That is enough to correct them, and linear in the number
/// of ranges.
pub(crate) fn overlaps<'n, 'd>(network: &'n NetworkView<'d>) -> impl Iterator<Item = RangeOverlap<'n, 'd>> {
    let mut ranges: Vec<_> =
        network.ranges.iter().filter_map(|range| Some((range.bounds()?, range.kind?, range))).collect();
    // The sort is stable: of two ranges with the same start, the first in the file stays first.
    ranges.sort_by_key(|(bounds, ..)| bounds.0);
    let mut furthest: [Option<(std::net::IpAddr, &RangeView<'d>)>; RangeKind::ALL.len()] = Default::default();
    let mut found = Vec::new();
    for ((start, end), kind, range) in ranges {
        for (upto, with) in furthest.iter().flatten() {
            if upto.is_ipv4() == start.is_ipv4() && *upto >= start {
                found.push(RangeOverlap { range, with });
            }
        }
        let slot = &mut furthest[kind as usize];
        if slot.is_none_or(|(upto, _)| upto.is_ipv4() != end.is_ipv4() || upto < end) {
            *slot = Some((end, range));
        }
    }
    found.into_iter()
}
