//! How many nodes may be unavailable at the same time.

use muster_core::names::Role;
use muster_core::rollout::strategy::{Amount, MaxUnavailable, PerLabel};

use super::amount;
use crate::environment::expect::{self, Fields};
use crate::finding::{Code, Report, quote};
use crate::span::Span;
use crate::spelling;
use crate::yaml::{Entry, Node, Value};

/// Keys of the mapping that are no roles. A role of one of these names has the default.
const DEFAULT: &str = "default";
const PER: &str = "per";

#[derive(Debug, Default)]
pub(super) struct Budget {
    pub(super) budget: MaxUnavailable,
    /// Where the label of `per` stands.
    pub(super) label: Option<Span>,
}

pub(super) fn read(node: &Node, roles: Option<&[&str]>, report: &mut Report<'_>) -> Option<Budget> {
    let mut budget = Budget::default();
    let map = match &node.value {
        Value::Map(map) => map,
        Value::Scalar(_) | Value::Seq(_) => {
            budget.budget.default = allowance(node, "\"max_unavailable\"", report)?;
            return Some(budget);
        }
    };
    for Entry { key, value } in map.entries() {
        match &*key.text {
            DEFAULT => {
                let what = "\"default\" of \"max_unavailable\"";
                budget.budget.default = allowance(value, what, report).unwrap_or(budget.budget.default);
            }
            PER => {
                let per = per(value, report);
                budget.label = per.as_ref().map(|(_, at)| *at);
                budget.budget.per = per.map(|(per, _)| per);
            }
            role if roles.is_none_or(|roles| roles.contains(&role)) => {
                let amount = allowance(value, &format!("the budget of role {}", quote(role)), report);
                if let (Some(amount), Ok(role)) = (amount, Role::new(role)) {
                    budget.budget.roles.insert(role, amount);
                }
            }
            unknown => {
                let roles = roles.unwrap_or_default();
                let known = roles.iter().copied().chain([DEFAULT, PER]);
                let help = match spelling::nearest(unknown, known) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => {
                        format!("the roles are {}; beside them there are \"default\" and \"per\"", roles.join(", "))
                    }
                };
                let message = format!("there is no role {} to have a budget", quote(unknown));
                report.add(key.span, Code::BudgetRole.finding(message).help(help));
            }
        }
    }
    Some(budget)
}

/// An amount that is not nothing.
fn allowance(node: &Node, what: &str, report: &mut Report<'_>) -> Option<Amount> {
    match amount::read(node, what, report)? {
        Amount::Nodes(0) | Amount::Percent(0) => nothing(node, what, report),
        amount @ (Amount::Nodes(_) | Amount::Percent(_)) => Some(amount),
    }
}

fn nothing<T>(node: &Node, what: &str, report: &mut Report<'_>) -> Option<T> {
    let finding = Code::BudgetOfNothing.finding(format!("{what} is nothing, so no node could ever be moved"));
    report.add(node.span, finding.expected("expected at least 1").help("to stop an environment, pause it"));
    None
}

fn per(node: &Node, report: &mut Report<'_>) -> Option<(PerLabel, Span)> {
    let of = "\"per\" of \"max_unavailable\"";
    let map = expect::mapping(node, of, "a mapping such as {label: rack, count: 1}", report)?;
    let fields = Fields::check(map, of, node.span, &["label", "count"], report);
    let label = fields.required("label", "rack", report);
    let count = fields.required("count", "1", report);
    let text = label.and_then(|node| expect::filled_text(node, &format!("\"label\" of {of}"), report));
    let count = count.and_then(|node| {
        let what = format!("\"count\" of {of}");
        match expect::integer(node, &what, "an integer", report)? {
            0 => nothing(node, &what, report),
            number => amount::nodes(number, 1, node, &what, report),
        }
    });
    Some((PerLabel { label: text?.to_owned(), count: count? }, label?.span))
}
