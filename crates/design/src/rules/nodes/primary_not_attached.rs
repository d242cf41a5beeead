//! The primary network of a node is one that it is in.

use crate::finding::{Code, quote};
use crate::rules::view::is_attached;
use crate::rules::{Check, Out, Rule, Site, Thing, attached};

pub(crate) const RULE: Rule = Rule::new(Code::PrimaryNotAttached, Check::Node(check));

fn check(_: &Site<'_>, node: &Thing<'_>, out: &mut Out) {
    let Some(primary) = node.get("primary_network") else { return };
    let Some(name) = primary.text() else { return };
    if is_attached(node, name) {
        return;
    }
    let networks = attached(node);
    // A node of which no network is known is connected by somebody else.
    if !networks.is_empty() {
        let message = format!("the primary network {} is none of the node's networks", quote(name));
        let help = format!("the node is in {}", networks.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", "));
        out.add(primary.span, Code::PrimaryNotAttached.finding(message).help(help));
    }
}
