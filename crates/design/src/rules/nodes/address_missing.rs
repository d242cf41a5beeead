//! Who names a network among the addresses gives the address.

use crate::finding::{Code, quote};
use crate::rules::view::addresses;
use crate::rules::{Check, Out, Rule, Site, Thing};

pub(crate) const RULE: Rule = Rule::new(Code::AddressMissing, Check::Node(check));

fn check(_: &Site<'_>, node: &Thing<'_>, out: &mut Out) {
    for given in addresses(node).filter(|given| given.written.is_none()) {
        let message = format!("the address in network {} is missing", quote(given.network.value));
        let help = "add address: ADDRESS, or address: dhcp if the node is given one";
        out.add(given.span, Code::AddressMissing.finding(message).help(help));
    }
}
