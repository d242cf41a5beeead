//! A node whose addresses are given has one in its primary network.

use crate::finding::{Code, quote};
use crate::rules::view::{addresses, is_attached};
use crate::rules::{Check, Out, Rule, Site, Thing};

pub(crate) const RULE: Rule = Rule::new(Code::PrimaryWithoutAddress, Check::Node(check));

fn check(_: &Site<'_>, node: &Thing<'_>, out: &mut Out) {
    let Some(primary) = node.get("primary_network") else { return };
    let Some(name) = primary.text() else { return };
    let mut given = addresses(node).peekable();
    let has_some = given.peek().is_some();
    let has_primary = given.any(|given| given.network.value == name);
    // Not being in the network at all is another finding.
    if has_some && !has_primary && is_attached(node, name) {
        let message = format!("the node has addresses, but none in its primary network {}", quote(name));
        let help = "add one, or say address: dhcp; or choose another primary network";
        out.add(node.at, Code::PrimaryWithoutAddress.finding(message).help(help));
    }
}
