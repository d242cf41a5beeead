//! A gateway is a host: it has neither the address of the network nor that of all its hosts.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::GatewayOfNoHost, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
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
