//! A bond looks at its members: else it never notices that one of them is dead.

use crate::finding::{Code, quote};
use crate::rules::view::BondMode;
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::BondUnwatched, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for link in site.topology().links.iter().filter(|link| link.bond_mode() != Some(BondMode::Disabled)) {
        if let Some(rate) = link.bonding_integer("mon_rate").filter(|rate| rate.value == 0) {
            let message = format!("the bond of link {} never looks at its members", quote(link.name));
            let help = "100 is usual: a look every 100 milliseconds";
            out.add(rate.span, Code::BondUnwatched.finding(message).help(help));
        }
    }
}
