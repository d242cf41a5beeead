//! Where there is no bond, nothing is said about one.

use crate::finding::{Code, quote};
use crate::rules::view::BondMode;
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::BondOptionsWithoutBond, Check::Site(check));

const OPTIONS: &[&str] = &["hash", "peer_rate", "mon_rate", "up_delay", "down_delay"];

fn check(site: &Site<'_>, out: &mut Out) {
    for link in site.topology().links.iter().filter(|link| link.bond_mode() == Some(BondMode::Disabled)) {
        let set: Vec<&str> = OPTIONS.iter().copied().filter(|option| link.bonding_option(option).is_some()).collect();
        if let Some(first) = set.first().and_then(|first| link.bonding_option(first)) {
            let options = set.iter().map(|option| quote(option)).collect::<Vec<_>>().join(", ");
            let message = format!("link {} has no bond, but says how it works: {options}", quote(link.name));
            let help = "choose a mode (802.3ad, active-backup, balance-rr), or remove the options; in a document that \
                        inherits them, with '!NAME'";
            out.add(first.span, Code::BondOptionsWithoutBond.finding(message).help(help));
        }
    }
}
