//! No two nodes have the same host name.

use crate::finding::{Code, quote};
use crate::resolve::host_name;
use crate::rules::{Check, Claim, Claims, Rule, Site, Taken, Thing};

pub(crate) const RULE: Rule = Rule::new(Code::DuplicateHostName, Check::Unique { claim, taken });

/// The name alone, without its domain: agents are known by it.
fn claim(_: &Site<'_>, node: &Thing<'_>, claims: &mut Claims<'_>) {
    let at = node.get("host_name").map_or(node.at, |given| given.span);
    claims.add(Claim::Name(host_name(node).into()), at);
}

fn taken(taken: &Taken<'_>) -> String {
    match taken.claim {
        Claim::Name(name) => format!("{} is the host name of node {} already", quote(name), quote(taken.first)),
        Claim::Address { .. } | Claim::Mac(_) => {
            format!("the host name is that of node {} already", quote(taken.first))
        }
    }
}
