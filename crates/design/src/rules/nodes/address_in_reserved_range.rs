//! A node's address is none that is kept free.

use crate::finding::{Code, quote};
use crate::rules::view::RangeKind;
use crate::rules::{Check, Out, Placement, Rule};

pub(crate) const RULE: Rule = Rule::new(Code::AddressInReservedRange, Check::Address(check));

fn check(placement: &Placement<'_>, out: &mut Out) {
    let Placement { address, network, .. } = placement;
    if let Some(range) = network.only_range(address.value, RangeKind::Reserved) {
        let message = format!("{} is in a reserved range of network {}", address.value, quote(network.name));
        let finding = Code::AddressInReservedRange
            .finding(message)
            .help("give the node another address, or leave this one out of the range");
        out.add_with_note(address.span, finding, "the range is here", range.node.span);
    }
}
