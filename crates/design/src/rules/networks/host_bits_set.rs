//! A network's address has no bits set that number its hosts.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::HostBitsSet, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for network in &site.topology().networks {
        let subnets = network.routes.iter().filter_map(|route| route.subnet);
        for cidr in network.cidr.into_iter().chain(subnets) {
            let canonical = cidr.value.canonical();
            if canonical != cidr.value {
                let message = format!("{} is the address of a host, not of a network", quote(&cidr.value.to_string()));
                out.add(cidr.span, Code::HostBitsSet.finding(message).expected(format!("expected {canonical}")));
            }
        }
    }
}
