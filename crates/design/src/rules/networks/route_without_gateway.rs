//! A route has a gateway.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::RouteWithoutGateway, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
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
