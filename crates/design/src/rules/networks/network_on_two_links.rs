//! A network is carried by one link.

use std::collections::HashMap;

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::NetworkOnTwoLinks, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    let mut carried = HashMap::new();
    for link in &site.topology().links {
        for network in &link.allowed {
            let (first, at) = *carried.entry(network.value).or_insert((link, network.span));
            if first.name != link.name {
                let message = format!(
                    "network {} is on two links: {} and {}",
                    quote(network.value),
                    quote(first.name),
                    quote(link.name)
                );
                let finding = Code::NetworkOnTwoLinks
                    .finding(message)
                    .help("remove it from one of them, or make two networks of it");
                out.add_with_note(network.span, finding, "the first link has it here", at);
            }
        }
    }
}
