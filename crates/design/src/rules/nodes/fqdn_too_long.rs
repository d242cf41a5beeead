//! A node's name with its domain is one that DNS can hold.

use crate::finding::Code;
use crate::resolve::{domain, host_name};
use crate::rules::{Check, Out, Rule, Site, Thing};

pub(crate) const RULE: Rule = Rule::new(Code::FqdnTooLong, Check::Node(check));

/// What a name in DNS may be long.
const LONGEST: usize = 253;

fn check(site: &Site<'_>, node: &Thing<'_>, out: &mut Out) {
    // Measured before it is made: nearly all are short.
    let length = host_name(node).len() + 1 + domain(site, node).len();
    if length > LONGEST {
        let message = format!("the host name with its domain is {length} characters long");
        let finding = Code::FqdnTooLong.finding(message).expected(format!("expected at most {LONGEST}"));
        let help = "shorten the host name, or the domain of the node's primary network";
        let primary = node.get("primary_network").map_or(node.at, |primary| primary.span);
        out.add_with_note(node.at, finding.help(help), "the primary network gives the domain", primary);
    }
}
