//! A bond's delays are no shorter than the time between two looks at its members.

use crate::finding::{Code, quote};
use crate::rules::view::BondMode;
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::BondDelay, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    let bonds = site.topology().links.iter().filter(|link| link.bond_mode() != Some(BondMode::Disabled));
    for link in bonds {
        let Some(rate) = link.bonding_integer("mon_rate") else { continue };
        for key in ["up_delay", "down_delay"] {
            // No delay at all is a choice; and one that is shorter than a look would be none as well, unasked.
            let delay = link.bonding_integer(key).filter(|delay| (1..rate.value).contains(&delay.value));
            if let Some(delay) = delay {
                let message = format!(
                    "the {} of {} ms is shorter than the mon_rate of {} ms",
                    quote(key),
                    delay.value,
                    rate.value
                );
                let finding = Code::BondDelay.finding(message).expected(format!("expected at least {}", rate.value));
                out.add_with_note(delay.span, finding, "the time between two looks is here", rate.span);
            }
        }
    }
}
