//! IPv6 is not reached through an IPv4 gateway. (The other way round there is a standard for: RFC 8950.)

use crate::finding::Code;
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::GatewayOfOtherFamily, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    let routes = site.topology().networks.iter().flat_map(|network| &network.routes);
    for (subnet, gateway) in routes.filter_map(|route| route.subnet.zip(route.gateway)) {
        if subnet.value.address.is_ipv6() && gateway.value.is_ipv4() {
            let message = format!("{} cannot be reached through the IPv4 gateway {}", subnet.value, gateway.value);
            let finding = Code::GatewayOfOtherFamily.finding(message).expected("expected an IPv6 address");
            out.add_with_note(gateway.span, finding, "what is to be reached", subnet.span);
        }
    }
}
