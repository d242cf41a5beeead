//! A node's address is in the network that it is meant for.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Placement, Rule};

pub(crate) const RULE: Rule = Rule::new(Code::AddressOutside, Check::Address(check));

fn check(placement: &Placement<'_>, out: &mut Out) {
    let Placement { address, network, .. } = placement;
    if let Some(cidr) = network.cidr.filter(|cidr| !cidr.value.contains(address.value)) {
        let message = format!("{} is not in network {}", address.value, quote(network.name));
        let finding = Code::AddressOutside.finding(message).expected(format!("expected an address of {}", cidr.value));
        out.add_with_note(address.span, finding, "the network's addresses are these", cidr.span);
    }
}
