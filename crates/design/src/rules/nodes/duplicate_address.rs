//! No two nodes have the same address.

use crate::finding::{Code, quote};
use crate::rules::view::addresses;
use crate::rules::{Check, Claim, Claims, Rule, Site, Taken, Thing};

pub(crate) const RULE: Rule = Rule::new(Code::DuplicateAddress, Check::Unique { claim, taken });

fn claim(_: &Site<'_>, node: &Thing<'_>, claims: &mut Claims<'_>) {
    for address in addresses(node).filter_map(|given| given.address()) {
        claims.add(Claim::Address(address.value), address.span);
    }
}

fn taken(taken: &Taken<'_>) -> String {
    match taken.claim {
        Claim::Address(address) if taken.first == taken.second => format!("the node has the address {address} twice"),
        Claim::Address(address) => format!("{address} is the address of node {} already", quote(taken.first)),
        Claim::Mac(_) | Claim::Name(_) => format!("the address is that of node {} already", quote(taken.first)),
    }
}
