//! A node's own address is none that DHCP may give to others.

use crate::finding::{Code, quote};
use crate::rules::view::RangeKind;
use crate::rules::{Check, Out, Placement, Rule};

pub(crate) const RULE: Rule = Rule::new(Code::AddressInDhcpRange, Check::Address(check));

fn check(placement: &Placement<'_>, out: &mut Out) {
    let Placement { address, network, .. } = placement;
    if let Some(range) = network.only_range(address.value, RangeKind::Dhcp) {
        let message = format!("{} is in a range of network {} that DHCP gives out", address.value, quote(network.name));
        let finding = Code::AddressInDhcpRange
            .finding(message)
            .help("give the node an address outside of the range, or say dhcp if it is given one");
        out.add_with_note(address.span, finding, "the range is here", range.node.span);
    }
}
