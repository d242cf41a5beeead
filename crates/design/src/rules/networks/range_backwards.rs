//! A range ends where it starts or after it.

use crate::finding::Code;
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::RangeBackwards, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for network in &site.topology().networks {
        for range in &network.ranges {
            let (Some(start), Some(end)) = (range.start, range.end) else { continue };
            let (message, help) = if start.value.is_ipv4() != end.value.is_ipv4() {
                let message = format!("the range starts at {} and ends at {}", start.value, end.value);
                (message, "start and end are both IPv4, or both IPv6")
            } else if start.value > end.value {
                (format!("the range ends at {}, before its start {}", end.value, start.value), "swap start and end")
            } else {
                continue;
            };
            out.add(end.span, Code::RangeBackwards.finding(message).help(help));
        }
    }
}
