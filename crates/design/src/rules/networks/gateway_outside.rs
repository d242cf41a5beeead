//! A gateway is in the network that is left through it.

use std::net::IpAddr;

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::GatewayOutside, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for network in &site.topology().networks {
        let Some(cidr) = network.cidr else { continue };
        for gateway in network.gateways() {
            if !cidr.value.contains(gateway.value) && !is_on_every_link(gateway.value) {
                let message = format!("the gateway {} is not in network {}", gateway.value, quote(network.name));
                let finding =
                    Code::GatewayOutside.finding(message).expected(format!("expected an address of {}", cidr.value));
                out.add_with_note(gateway.span, finding, "the network's addresses are these", cidr.span);
            }
        }
    }
}

/// Routers of IPv6 are most often known by an address that is valid on the wire alone, `fe80::1`.
fn is_on_every_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}
