//! Routes of a node, with routing domains expanded.
//!
//! Networks belong to a routing domain (`routedomain: X`). A network that has a route for the domain (`domain_routes`)
//! reaches the addresses of every other member through that route's gateway, whether it is a member itself or not. An
//! explicit route for the same addresses wins.

use std::net::IpAddr;

use serde::{Serialize, Serializer};

use crate::rules::{DocumentView, Network, Site, attached};
use crate::types::Cidr;

/// One route of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Network of the interface.
    pub network: String,
    #[serde(serialize_with = "as_text")]
    pub subnet: Cidr,
    pub gateway: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<i64>,
    /// Routing domain that the route was derived from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routedomain: Option<String>,
}

/// Routes of all networks of a node, in the order of its interfaces.
pub(super) fn of_node(site: &Site<'_>, node: &DocumentView<'_>) -> Vec<Route> {
    let networks = attached(node).into_iter().filter_map(|name| site.topology().network(name));
    networks.flat_map(|network| of_network(site, network)).collect()
}

fn of_network(site: &Site<'_>, network: &Network<'_>) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    let route = |subnet: Cidr, gateway, metric, routedomain: Option<&str>| Route {
        network: network.name.to_owned(),
        subnet: subnet.canonical(),
        gateway,
        metric,
        routedomain: routedomain.map(str::to_owned),
    };
    for written in &network.routes {
        if let (Some(subnet), Some(gateway)) = (written.subnet, written.gateway) {
            routes.push(route(subnet.value, gateway.value, written.metric, None));
        }
    }
    for through in &network.domain_routes {
        let (Some(domain), Some(gateway)) = (through.domain, through.gateway) else { continue };
        let members = site.topology().members(domain.value);
        for subnet in members.filter_map(|member| Some(member.cidr?.value.canonical())) {
            let is_own = network.cidr.is_some_and(|own| own.value.canonical() == subnet);
            let is_there = routes.iter().any(|route| route.subnet == subnet);
            if !is_own && !is_there && subnet.address.is_ipv4() == gateway.value.is_ipv4() {
                routes.push(route(subnet, gateway.value, through.metric, Some(domain.value)));
            }
        }
    }
    routes
}

fn as_text<S: Serializer>(cidr: &Cidr, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(cidr)
}
