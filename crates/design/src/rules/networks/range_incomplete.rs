//! A range says what it is for and where it ends.

use crate::finding::{Code, quote};
use crate::rules::{Check, Out, Rule, Site};

pub(crate) const RULE: Rule = Rule::new(Code::RangeIncomplete, Check::Site(check));

fn check(site: &Site<'_>, out: &mut Out) {
    for network in &site.topology().networks {
        for range in &network.ranges {
            let missing: Vec<&str> = ["type", "end"].into_iter().filter(|key| range.node.get(key).is_none()).collect();
            if range.node.map().is_some() && !missing.is_empty() {
                let missing = missing.iter().map(|key| quote(key)).collect::<Vec<_>>().join(" and no ");
                let message = format!("a range of network {} has no {missing}", quote(network.name));
                let help = "a range is written {type: static, start: 10.1.0.10, end: 10.1.0.99}";
                out.add(range.node.span, Code::RangeIncomplete.finding(message).help(help));
            }
        }
    }
}
