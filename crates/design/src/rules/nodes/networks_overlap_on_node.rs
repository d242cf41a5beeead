//! The networks of a node have no address in common: it could not tell where to send to.

use std::collections::HashSet;

use crate::finding::{Code, quote};
use crate::rules::view::{Addressed, Placed, overlapping};
use crate::rules::{Check, Interface, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::NetworksOverlapOnNode, Check::Interfaces(check));

fn check(site: &Site<'_>, interfaces: &[Interface<'_>], out: &mut Out) {
    let mut seen = HashSet::new();
    let mut networks: Vec<Addressed<'_, '_>> = Vec::new();
    for network in interfaces.iter().flat_map(|interface| &interface.networks) {
        if let Some(read) = site.topology().network(network.value)
            && let Some(cidr) = read.cidr
            && seen.insert(network.value)
        {
            networks.push((read, Placed { value: cidr.value, span: network.span }));
        }
    }
    for ((wider, first), (network, second)) in overlapping(networks) {
        // Within one routing domain it is an error, and has been told.
        if wider.routedomain.zip(network.routedomain).is_some_and(|(a, b)| a.value == b.value) {
            continue;
        }
        let message =
            format!("networks {} and {} of one node have addresses in common", quote(wider.name), quote(network.name));
        let finding = Code::NetworksOverlapOnNode
            .finding(message)
            .help("give one of the networks other addresses, or take the node out of one");
        out.add_with_note(second.span, finding, "the other one is here", first.span);
    }
}
