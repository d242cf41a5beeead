//! An out-of-band access should say what it is.

use super::says;
use crate::finding::Code;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::NoOobType, Check::Part("oob", check));

fn check(_: &Site<'_>, oob: &Node, out: &mut Out) {
    if oob.map().is_some_and(|map| !map.entries().is_empty()) && !says(oob, "type") {
        let finding = Code::NoOobType.finding("the out-of-band access does not say of which type it is");
        out.add(
            oob.span,
            finding.help(format!("add \"type\", one of {}, or a driver's own word", super::TYPES.join(", "))),
        );
    }
}
