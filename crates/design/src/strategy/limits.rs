//! Parses the limits of a rollout strategy: unavailable nodes, tolerated failures and deadlines.

use jiff::SignedDuration;
use muster_core::names::Role;
use muster_core::rollout::strategy::{Amount, Deadlines, FailureLimits, MaxUnavailable, PerLabel};

use super::values;
use crate::environment::expect::{self, MapFields};
use crate::file_text::Span;
use crate::finding::{Code, FindingCollector, quote};
use crate::yaml::{Value, YamlEntry, YamlNode};
use muster_core::spelling;

/// Keys of the mapping that are not roles. A role with one of these names gets the default.
const DEFAULT: &str = "default";
const PER: &str = "per";

#[derive(Debug, Default)]
pub(super) struct UnavailabilityBudget {
    pub(super) budget: MaxUnavailable,
    /// Span of the label of `per`.
    pub(super) label: Option<Span>,
}

pub(super) fn read_budget(
    node: &YamlNode,
    roles: Option<&[&str]>,
    report: &mut FindingCollector<'_>,
) -> Option<UnavailabilityBudget> {
    let mut budget = UnavailabilityBudget::default();
    let map = match &node.value {
        Value::Map(map) => map,
        Value::Scalar(_) | Value::Seq(_) => {
            budget.budget.default = allowance(node, "\"max_unavailable\"", report)?;
            return Some(budget);
        }
    };
    for YamlEntry { key, value } in map.entries() {
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

/// Reads an amount greater than zero.
fn allowance(node: &YamlNode, what: &str, report: &mut FindingCollector<'_>) -> Option<Amount> {
    match values::read_amount(node, what, report)? {
        Amount::Nodes(0) | Amount::Percent(0) => nothing(node, what, report),
        amount @ (Amount::Nodes(_) | Amount::Percent(_)) => Some(amount),
    }
}

fn nothing<T>(node: &YamlNode, what: &str, report: &mut FindingCollector<'_>) -> Option<T> {
    let finding = Code::BudgetOfNothing.finding(format!("{what} is zero, so no node could ever be updated"));
    report.add(node.span, finding.expected("expected at least 1").help("to stop an environment, pause it"));
    None
}

fn per(node: &YamlNode, report: &mut FindingCollector<'_>) -> Option<(PerLabel, Span)> {
    let of = "\"per\" of \"max_unavailable\"";
    let map = expect::mapping(node, of, "a mapping such as {label: rack, count: 1}", report)?;
    let fields = MapFields::check(map, of, node.span, &["label", "count"], report);
    let label = fields.required("label", "rack", report);
    let count = fields.required("count", "1", report);
    let text = label.and_then(|node| expect::filled_text(node, &format!("\"label\" of {of}"), report));
    let count = count.and_then(|node| {
        let what = format!("\"count\" of {of}");
        match expect::integer(node, &what, "an integer", report)? {
            0 => nothing(node, &what, report),
            number => values::nodes(number, 1, node, &what, report),
        }
    });
    Some((PerLabel { label: text?.to_owned(), count: count? }, label?.span))
}

pub(super) fn read_failures(node: &YamlNode, report: &mut FindingCollector<'_>) -> Option<FailureLimits> {
    let of = "\"failures\"";
    let map = expect::mapping(node, of, "a mapping such as {canary: 0, wave: 1, total: 5%}", report)?;
    let fields = MapFields::check(map, of, node.span, &["canary", "wave", "total"], report);
    let default = FailureLimits::default();
    let mut read = |key: &str, default: Amount| {
        let node = fields.optional(key);
        node.and_then(|node| values::read_amount(node, &format!("\"{key}\" of {of}"), report)).unwrap_or(default)
    };
    Some(FailureLimits {
        canary: read("canary", default.canary),
        wave: read("wave", default.wave),
        total: read("total", default.total),
    })
}

pub(super) fn read_deadlines(node: &YamlNode, report: &mut FindingCollector<'_>) -> Option<Deadlines> {
    let of = "\"deadlines\"";
    let map = expect::mapping(node, of, "a mapping such as {node: 15m, pending: 30m, progress: 1h}", report)?;
    let fields = MapFields::check(map, of, node.span, &["node", "pending", "progress"], report);
    let default = Deadlines::default();
    let mut read = |key: &str, default: SignedDuration| {
        let what = format!("\"{key}\" of {of}");
        match fields.optional(key) {
            Some(node) => values::read_duration(node, &what, values::MinDuration::Positive, report),
            None => Some(default),
        }
    };
    let node = read("node", default.node);
    let pending = read("pending", default.pending);
    let progress = read("progress", default.progress);
    Some(Deadlines { node: node?, pending: pending?, progress: progress? })
}
