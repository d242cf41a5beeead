//! No two nodes are installed through the same hardware address.

use crate::finding::{Code, quote};
use crate::rules::{Check, Claim, Claims, Rule, Site, Taken, Thing};
use crate::types::mac;

pub(crate) const RULE: Rule = Rule::new(Code::DuplicateMac, Check::Unique { claim, taken });

fn claim(_: &Site<'_>, node: &Thing<'_>, claims: &mut Claims<'_>) {
    if let Some(given) = node.get("boot_mac")
        && let Some(mac) = given.text().and_then(mac)
    {
        claims.add(Claim::Mac(mac), given.span);
    }
}

fn taken(taken: &Taken<'_>) -> String {
    format!("the hardware address is that of node {} already", quote(taken.first))
}
