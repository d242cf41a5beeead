//! A node has an address that hosts can have.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Placement, Rule};

pub(crate) const RULE: Rule = Rule::new(Code::AddressOfNoHost, Check::Address(check));

fn check(placement: &Placement<'_>, out: &mut Out) {
    let Placement { address, network, .. } = placement;
    if let Some(cidr) = placement.inside().filter(|cidr| cidr.is_of_no_host(address.value)) {
        let what = if address.value == cidr.network() { "the network itself" } else { "all hosts at once" };
        let message = format!("{} is the address of {what} in network {}", address.value, quote(network.name));
        out.add(address.span, Code::AddressOfNoHost.finding(message).help("give the node another address"));
    }
}
