//! What belongs to 802.3ad is not said of a bond of another mode.

use crate::finding::{Code, quote};
use crate::rules::view::BondMode;
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::BondOptionOfOtherMode, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for link in &site.topology().links {
        let mode = match link.bond_mode() {
            Some(mode @ (BondMode::ActiveBackup | BondMode::BalanceRr)) => mode,
            Some(BondMode::Disabled | BondMode::Lacp) | None => continue,
        };
        for option in ["hash", "peer_rate"] {
            if let Some(node) = link.bonding_option(option) {
                let message = format!("{} means nothing to a bond of mode {}", quote(option), quote(mode.word()));
                let help = "remove it, or choose the mode 802.3ad";
                out.add(node.span, Code::BondOptionOfOtherMode.finding(message).help(help));
            }
        }
    }
}
