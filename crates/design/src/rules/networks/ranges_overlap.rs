//! An address is for one thing: ranges of different types have none in common.

use crate::finding::{Code, quote};
use crate::rules::view::{Overlap, overlaps};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::RangesOverlap, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for network in &site.topology().networks {
        for Overlap { range, with } in overlaps(network).filter(|overlap| overlap.range.kind != overlap.with.kind) {
            let (Some(kind), Some(with_kind), Some(start)) = (range.kind, with.kind, range.start) else { continue };
            let message = format!(
                "a {} and a {} range of network {} have addresses in common",
                with_kind.word(),
                kind.word(),
                quote(network.name)
            );
            let finding = Code::RangesOverlap.finding(message).help("move the start or the end of one of them");
            out.add_with_note(start.span, finding, "the other one is here", with.node.span);
        }
    }
}
