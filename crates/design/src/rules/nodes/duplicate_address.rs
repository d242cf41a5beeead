//! No two nodes have the same address, where their networks meet.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::finding::{Code, quote};
use crate::rules::view::addresses;
use crate::rules::{Check, Claim, Claims, Rule, Site, Taken, Thing};

pub(crate) const RULE: Rule = Rule::new(Code::DuplicateAddress, Check::Unique { claim, taken });

fn claim(site: &Site<'_>, node: &Thing<'_>, claims: &mut Claims<'_>) {
    for given in addresses(node) {
        if let Some(address) = given.address() {
            let scope = scope(site, given.network.value);
            claims.add(Claim::Address { scope, address: address.value }, address.span);
        }
    }
}

/// Where an address must be the only one: in its network's routing domain, or in its network if that belongs to none.
fn scope(site: &Site<'_>, network: &str) -> u64 {
    let domain = site.topology().network(network).and_then(|network| network.routedomain);
    let mut hasher = DefaultHasher::new();
    domain.map(|domain| domain.value).ok_or(network).hash(&mut hasher);
    hasher.finish()
}

fn taken(taken: &Taken<'_>) -> String {
    match taken.claim {
        Claim::Address { address, .. } if taken.first == taken.second => {
            format!("the node has the address {address} twice")
        }
        Claim::Address { address, .. } => format!("{address} is the address of node {} already", quote(taken.first)),
        Claim::Mac(_) | Claim::Name(_) => format!("the address is that of node {} already", quote(taken.first)),
    }
}
