//! A node's out-of-band access must have an address.

use super::remote_type;
use crate::finding::{Code, quote};
use crate::rules::view::{Placed, addresses};
use crate::rules::{Check, Out, Rule, Site, Thing};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::OobWithoutAddress, Check::Node(check));

fn check(_: &Site<'_>, node: &Thing<'_>, out: &mut Out) {
    let Some(oob) = node.get("oob") else { return };
    let (Some(_), Some(network)) = (remote_type(oob), Placed::text(oob, "network")) else { return };
    if !addresses(node).any(|address| address.network.value == network.value) {
        let message =
            format!("the node has no address in {}, the network of its out-of-band access", quote(network.value));
        let finding = Code::OobWithoutAddress.finding(message);
        let help = "add the address of the machine's controller to the node's \"addresses\"";
        out.add_with_note(node.at, finding.help(help), "the network is named here", network.span);
    }
}
