//! A range is inside its network.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::RangeOutside, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for network in &site.topology().networks {
        let Some(cidr) = network.cidr else { continue };
        for range in &network.ranges {
            // The first end that is outside is enough: most often it is both.
            let mut ends = range.start.into_iter().chain(range.end);
            if let Some(outside) = ends.find(|end| !cidr.value.contains(end.value)) {
                let message = format!("{} is not in network {}", outside.value, quote(network.name));
                let finding =
                    Code::RangeOutside.finding(message).expected(format!("expected an address of {}", cidr.value));
                out.add_with_note(outside.span, finding, "the network's addresses are these", cidr.span);
            }
        }
    }
}
