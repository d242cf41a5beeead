//! Networks of one routing domain have no address in common: a router could not tell which one is meant.

use std::collections::BTreeMap;

use crate::finding::{Code, quote};
use crate::rules::view::{Addressed, overlapping};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::NetworksOverlap, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    let mut domains: BTreeMap<&str, Vec<Addressed<'_, '_>>> = BTreeMap::new();
    for network in &site.topology().networks {
        if let (Some(domain), Some(cidr)) = (network.routedomain, network.cidr) {
            domains.entry(domain.value).or_default().push((network, cidr));
        }
    }
    for (domain, members) in domains {
        for ((wider, wider_cidr), (network, cidr)) in overlapping(members) {
            let message = format!(
                "networks {} and {} of routing domain {} have addresses in common",
                quote(wider.name),
                quote(network.name),
                quote(domain)
            );
            let finding = Code::NetworksOverlap
                .finding(message)
                .help("give one of them other addresses, or put them into different routing domains");
            out.add_with_note(cidr.span, finding, "the other one is here", wider_cidr.span);
        }
    }
}
