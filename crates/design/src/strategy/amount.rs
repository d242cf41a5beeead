//! A number of nodes, or a share of them: `2`, `20%`.

use muster_core::rollout::strategy::Amount;

use crate::environment::MOST_NODES;
use crate::finding::{Code, Report, one_line};
use crate::yaml::{Kind, Node};

/// Reads an amount; 0 is one, and so is `0%`.
pub(super) fn read(node: &Node, what: &str, report: &mut Report<'_>) -> Option<Amount> {
    match node.kind() {
        Some(Kind::Int(number)) => Some(Amount::Nodes(nodes(number, 0, node, what, report)?)),
        Some(Kind::Text) if node.text().is_some_and(|text| text.ends_with('%')) => {
            Some(Amount::Percent(percent(node, 0, what, report)?))
        }
        _ => not_an_amount(node, what, report),
    }
}

/// A number of nodes that is at least so many.
pub(super) fn nodes(number: i64, least: u32, node: &Node, what: &str, report: &mut Report<'_>) -> Option<u32> {
    let legal =
        u32::try_from(number).ok().filter(|number| (u64::from(least)..=MOST_NODES).contains(&u64::from(*number)));
    if legal.is_none() {
        let finding = Code::OutOfRange.finding(format!("{what} cannot be {number}"));
        report.add(node.span, finding.expected(format!("expected {least} to {MOST_NODES}")));
    }
    legal
}

/// A percentage that is at least so many, with its sign or without.
pub(super) fn percent(node: &Node, least: u8, what: &str, report: &mut Report<'_>) -> Option<u8> {
    let written = node.scalar().map(|scalar| scalar.text()).unwrap_or_default();
    let digits = written.strip_suffix('%').unwrap_or(written);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return not_an_amount(node, what, report);
    }
    let legal = digits.parse::<u8>().ok().filter(|percent| (least..=100).contains(percent));
    if legal.is_none() {
        let finding = Code::PercentRange.finding(format!("{what} cannot be {}%", one_line(digits)));
        report.add(node.span, finding.expected(format!("expected {least}% to 100%")));
    }
    legal
}

fn not_an_amount<T>(node: &Node, what: &str, report: &mut Report<'_>) -> Option<T> {
    let finding = Code::NotAnAmount.finding(format!("{what} is neither a number of nodes nor a percentage"));
    // Often it is only a space, or a sign too many.
    let written = node.scalar().map(|scalar| scalar.text()).unwrap_or_default();
    let digits: String = written.chars().filter(char::is_ascii_digit).collect();
    let meant = (1..=3).contains(&digits.len()) && written.ends_with('%') && !written.contains(['-', '.']);
    let finding = finding.expected("expected, for instance, 2 or 20%");
    report.add(node.span, finding.help_if(meant.then(|| format!("did you mean {digits}%?"))));
    None
}
