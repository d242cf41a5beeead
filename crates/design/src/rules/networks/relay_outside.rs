//! A DHCP relay has an address in the network that it serves: the server tells by it which network asks.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::RelayOutside, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for network in &site.topology().networks {
        let (Some(cidr), Some(relay)) = (network.cidr, network.relay) else { continue };
        if !cidr.value.contains(relay.value) {
            let message = format!("the DHCP relay's address {} is not in network {}", relay.value, quote(network.name));
            let finding =
                Code::RelayOutside.finding(message).expected(format!("expected an address of {}", cidr.value));
            out.add_with_note(relay.span, finding, "the network's addresses are these", cidr.span);
        }
    }
}
