//! How many huge pages, and how large: one says little without the other.

use crate::finding::Code;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::Node;

pub(in crate::rules) const RULE: Rule = Rule::new(Code::HugepagesAlone, Check::Part("platform", check));

const NUMBER: &str = "hugepages";
const SIZE: &str = "hugepagesz";

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    let Some(params) = node.get("kernel_params").and_then(Node::map) else { return };
    let (there, missing) = match (params.get(NUMBER), params.get(SIZE)) {
        (Some(there), None) => (there, SIZE),
        (None, Some(there)) => (there, NUMBER),
        (None, None) | (Some(_), Some(_)) => return,
    };
    let message = format!("the kernel parameter \"{}\" is there without \"{missing}\"", there.key.text);
    let help = "say how many huge pages there shall be, and how large each is, or neither";
    out.add(there.key.span, Code::HugepagesAlone.finding(message).help(help));
}
