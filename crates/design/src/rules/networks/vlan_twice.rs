//! A VLAN of a link is one network of IPv4 and one of IPv6 at most.

use std::collections::HashMap;

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::VlanTwice, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for link in site.topology().links.iter().filter(|link| link.is_trunk) {
        let mut first = HashMap::new();
        for network in link.allowed.iter().filter_map(|name| site.topology().network(name.value)) {
            let (Some(vlan), Some(cidr)) = (network.vlan, network.cidr) else { continue };
            let key = (vlan.value, cidr.value.address.is_ipv4());
            let (other, at) = *first.entry(key).or_insert((network, vlan.span));
            if other.name != network.name {
                let message = format!(
                    "networks {} and {} have the same VLAN {} on link {}",
                    quote(other.name),
                    quote(network.name),
                    vlan.value,
                    quote(link.name)
                );
                let finding = Code::VlanTwice
                    .finding(message)
                    .help("give one of them another number; on one VLAN their hosts hear each other");
                out.add_with_note(vlan.span, finding, "the first one is here", at);
            }
        }
    }
}
