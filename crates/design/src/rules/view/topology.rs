//! The networks, links and racks of a site, read once: thousands of nodes are held against them.

use std::collections::HashMap;

use super::{Link, Network};
use crate::kinds::Kind;
use crate::rules::Site;
use crate::yaml::Node;

#[derive(Debug, Default)]
pub(crate) struct Topology<'d> {
    /// By name, in order.
    pub networks: Vec<Network<'d>>,
    pub links: Vec<Link<'d>>,
    network_by_name: HashMap<&'d str, usize>,
    link_by_name: HashMap<&'d str, usize>,
    /// Which link carries a network: the first by name, if there are several.
    carriers: HashMap<&'d str, usize>,
    /// The networks of each routing domain.
    domains: HashMap<&'d str, Vec<usize>>,
    /// The racks that networks do not leave.
    racks: HashMap<&'d str, Vec<&'d str>>,
}

impl<'d> Topology<'d> {
    pub(crate) fn of(site: &Site<'d>) -> Self {
        let networks: Vec<Network<'d>> = site.all(Kind::Network).iter().map(Network::read).collect();
        let links: Vec<Link<'d>> = site.all(Kind::NetworkLink).iter().map(Link::read).collect();
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
            let local = rack.get("local_networks").and_then(Node::items).unwrap_or_default();
            for network in local.iter().filter_map(Node::text) {
                racks.entry(network).or_default().push(rack.name);
            }
        }
        Topology { networks, links, network_by_name, link_by_name, carriers, domains, racks }
    }

    pub(crate) fn network(&self, name: &str) -> Option<&Network<'d>> {
        self.networks.get(*self.network_by_name.get(name)?)
    }

    pub(crate) fn link(&self, name: &str) -> Option<&Link<'d>> {
        self.links.get(*self.link_by_name.get(name)?)
    }

    /// The link that carries a network.
    pub(crate) fn carrier(&self, network: &str) -> Option<&Link<'d>> {
        self.links.get(*self.carriers.get(network)?)
    }

    /// The racks that a network does not leave; none if it is not bound to any.
    pub(crate) fn racks_of(&self, network: &str) -> &[&'d str] {
        self.racks.get(network).map(Vec::as_slice).unwrap_or_default()
    }

    /// The networks of a routing domain, by name.
    pub(crate) fn members(&self, domain: &str) -> impl Iterator<Item = &Network<'d>> {
        self.domains.get(domain).into_iter().flatten().filter_map(|at| self.networks.get(*at))
    }
}
