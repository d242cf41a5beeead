//! A node does not have the address of a gateway, or of a DHCP relay.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Placement, Rule};

pub(crate) const RULE: Rule = Rule::new(Code::AddressOfRouter, Check::Address(check));

fn check(placement: &Placement<'_>, out: &mut Out) {
    let Placement { address, network, .. } = placement;
    let gateway = network.gateways().find(|gateway| gateway.value == address.value);
    let relay = network.relay.filter(|relay| relay.value == address.value);
    let taken = gateway.map(|gateway| (gateway, "a gateway")).or(relay.map(|relay| (relay, "the DHCP relay")));
    if let Some((other, what)) = taken {
        let message = format!("{} is the address of {what} of network {}", address.value, quote(network.name));
        let finding = Code::AddressOfRouter.finding(message).help("give the node another address");
        out.add_with_note(address.span, finding, "it is taken here", other.span);
    }
}
