//! Networks of one routing domain have no address in common: a router could not tell which one is meant.

use std::collections::BTreeMap;

use crate::finding::{Code, Finding, quote};
use crate::rules::view::{Network, Placed};
use crate::rules::{Check, Out, Rule, Site};
use crate::types::Cidr;

pub(crate) const RULE: Rule = Rule::new(Code::NetworksOverlap, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    let mut domains: BTreeMap<&str, Vec<(&Network<'_>, Placed<Cidr>)>> = BTreeMap::new();
    for network in &site.topology().networks {
        if let (Some(domain), Some(cidr)) = (network.routedomain, network.cidr) {
            domains.entry(domain.value).or_default().push((network, cidr));
        }
    }
    for (domain, mut members) in domains {
        // A wider network comes before what is in it, so one look at the last that is not inside another is enough.
        members.sort_by_key(|(network, cidr)| (cidr.value.network(), cidr.value.prefix, network.name));
        let mut widest: Option<(&Network<'_>, Placed<Cidr>)> = None;
        for (network, cidr) in members {
            match widest {
                Some((other, wider)) if wider.value.overlaps(cidr.value) => {
                    let message = format!(
                        "networks {} and {} of routing domain {} have addresses in common",
                        quote(other.name),
                        quote(network.name),
                        quote(domain)
                    );
                    let finding = Finding::new(Code::NetworksOverlap, message)
                        .help("give one of them other addresses, or put them into different routing domains");
                    out.add_with_note(cidr.span, finding, "the other one is here", wider.span);
                }
                Some(_) | None => widest = Some((network, cidr)),
            }
        }
    }
}
