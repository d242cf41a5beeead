//! Ranges of one type need not have addresses in common: most often one of them was meant to be another one.

use crate::finding::{Code, quote};
use crate::rules::view::{Overlap, overlaps};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::RangesRepeat, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for network in &site.topology().networks {
        for Overlap { range, with } in overlaps(network).filter(|overlap| overlap.range.kind == overlap.with.kind) {
            let (Some(kind), Some(start)) = (range.kind, range.start) else { continue };
            let message =
                format!("two {} ranges of network {} have addresses in common", kind.word(), quote(network.name));
            let finding = Code::RangesRepeat.finding(message).help("make one range of them, or move one");
            out.add_with_note(start.span, finding, "the other one is here", with.node.span);
        }
    }
}
