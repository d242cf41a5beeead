//! A link that carries several networks tells them apart.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::TrunkingNeeded, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for link in site.topology().links.iter().filter(|link| !link.is_trunk) {
        let Some((first, others)) = link.allowed.split_first() else { continue };
        // One of IPv4 and one of IPv6 on an untagged wire are told apart by what they are.
        let network = |name: &str| site.topology().network(name);
        let is_pair = |other: &str| {
            others.len() == 1
                && network(first.value)
                    .zip(network(other))
                    .is_some_and(|(a, b)| a.is_other_family(b) && a.vlan.is_none() && b.vlan.is_none())
        };
        if let Some(second) = others.first().filter(|second| !is_pair(second.value)) {
            let message = format!("link {} carries {} networks, but is no trunk", quote(link.name), link.allowed.len());
            let help = "add trunking: {mode: 802.1q}, or leave one network";
            out.add(second.span, Code::TrunkingNeeded.finding(message).help(help));
        }
    }
}
