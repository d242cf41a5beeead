//! Where a network says which addresses nodes have, a node has one of them.

use crate::finding::{Code, quote};
use crate::rules::view::RangeKind;
use crate::rules::{Check, Out, Placement, Rule};

pub(crate) const RULE: Rule = Rule::new(Code::AddressInNoRange, Check::Address(check));

fn check(placement: &Placement<'_>, out: &mut Out) {
    let Placement { address, network, .. } = placement;
    if !network.has_ranges(RangeKind::Static) || placement.inside().is_none() {
        return;
    }
    // In a range of another type it is another finding.
    if network.ranges_of(address.value).next().is_none() {
        let message = format!("{} is in no static range of network {}", address.value, quote(network.name));
        let finding = Code::AddressInNoRange
            .finding(message)
            .help("give the node an address of a static range, or make a range larger");
        let range = network.ranges.iter().find(|range| range.kind == Some(RangeKind::Static));
        match range {
            Some(range) => out.add_with_note(address.span, finding, "a static range is here", range.node.span),
            None => out.add(address.span, finding),
        }
    }
}
