//! A network in which nodes have addresses says which ones it has.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Placement, Rule};

pub(crate) const RULE: Rule = Rule::new(Code::AddressWithoutCidr, Check::Address(check));

fn check(placement: &Placement<'_>, out: &mut Out) {
    let Placement { network, network_at, .. } = placement;
    if !network.has_cidr {
        let message = format!("network {} has no \"cidr\" that an address could be in", quote(network.name));
        let finding = Code::AddressWithoutCidr
            .finding(message)
            .help("add a cidr to the network; without one nobody knows which other addresses are near");
        out.add_with_note(*network_at, finding, "the network is here", network.at);
    }
}
