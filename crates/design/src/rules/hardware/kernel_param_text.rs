//! A kernel's command line is one line.

use crate::finding::{Code, quote};
use crate::rules::view::entries;
use crate::rules::{Check, Out, Rule, Site};
use crate::yaml::{Node, Scalar};

pub(in crate::rules) const RULE: Rule = Rule::new(Code::KernelParamText, Check::Part("platform", check));

fn check(_: &Site<'_>, node: &Node, out: &mut Out) {
    for entry in entries(node, "kernel_params") {
        let value = entry.value.scalar().map(Scalar::text).unwrap_or_default();
        let breaks = |text: &str| text.contains(char::is_control);
        let quotes = value.matches('"').count();
        let (span, what) = if breaks(&entry.key.text) {
            (entry.key.span, "the name of a kernel parameter holds a line break or another control character")
        } else if breaks(value) {
            (entry.value.span, "the value of a kernel parameter holds a line break or another control character")
        } else if quotes % 2 == 1 {
            (entry.value.span, "the value of a kernel parameter holds a double quote that is not closed")
        } else {
            continue;
        };
        let finding = Code::KernelParamText.finding(format!("{what}: {}", quote(&entry.key.text)));
        out.add(
            span,
            finding.help("all parameters stand on one line: write it on one, and mind a \"|\" or \">\" before it"),
        );
    }
}
