//! The host name that follows from a node's name is legal.

use muster_core::names::NodeName;

use crate::finding::{Code, quote};
use crate::resolve::host_name;
use crate::rules::{Check, Out, Rule, Site, Thing};

pub(crate) const RULE: Rule = Rule::new(Code::HostNameOfNode, Check::Node(check));

/// What fits between two dots of a name.
const LONGEST: usize = 63;

fn check(_: &Site<'_>, node: &Thing<'_>, out: &mut Out) {
    // A host name that is written out, and a node's name that is not legal, are reported where they are read.
    if node.get("host_name").is_none() && node.name.len() > LONGEST && NodeName::new(node.name).is_ok() {
        let message = format!("the host name {} is {} characters long", quote(&host_name(node)), node.name.len());
        let finding = Code::HostNameOfNode.finding(message).expected(format!("expected at most {LONGEST}"));
        out.add(node.at, finding.help("give the node a shorter name, or a host_name of its own"));
    }
}
