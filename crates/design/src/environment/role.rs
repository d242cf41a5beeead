//! One role of an environment file.

use std::collections::{BTreeMap, HashSet};

use muster_core::names::{NodeName, Role, Stack};

use super::expect::Fields;
use super::file::{Fleet, MOST_NODES};
use super::order::Wish;
use super::{FAILURE_DOMAIN, RoleDesign, expect};
use crate::finding::{Code, Report, quote};
use crate::span::Span;
use crate::yaml::{Entry, Node};

const KEYS: &[&str] = &["cardinality", "flavor", "profile", "labels", "failure_domain", "after"];

/// Four digits: enough for any role, and a typing error (a port, a memory size) does not order 100,000 machines.
const MOST: u32 = 9999;

/// The longest label of a host name (RFC 1035).
const LONGEST_HOST_NAME: usize = 63;

/// Reads a role. Its wishes for the order are returned even if the rest is not legal: they are judged with those of
/// all other roles.
pub(super) fn parse<'n>(
    entry: &'n Entry,
    fleet: &mut Fleet<'_>,
    report: &mut Report<'_>,
) -> (Option<RoleDesign>, Vec<Wish<'n>>) {
    let Entry { key, value } = entry;
    let of = format!("role {}", quote(&key.text));
    let role = name(&key.text, key.span, report);
    let Some(map) = expect::mapping(value, &of, "a mapping with cardinality and flavor", report) else {
        return (None, Vec::new());
    };
    let fields = Fields::check(map, &of, key.span, KEYS, report);
    let cardinality = fields.required("cardinality", "1", report).and_then(|node| cardinality(node, &of, report));
    let flavor = fields
        .required("flavor", "small", report)
        .and_then(|node| expect::filled_text(node, &format!("\"flavor\" of {of}"), report));
    let profile =
        fields.optional("profile").and_then(|node| expect::filled_text(node, &format!("\"profile\" of {of}"), report));
    let failure_domain = fields
        .optional("failure_domain")
        .and_then(|node| expect::filled_text(node, &format!("\"failure_domain\" of {of}"), report));
    let labels = fields.optional("labels").map(|node| labels(node, &of, report)).unwrap_or_default();
    let wishes = fields.optional("after").map(|node| after(node, &of, report)).unwrap_or_default();

    let design = |role: Role, cardinality, flavor: &str, report: &mut Report<'_>| {
        Some(RoleDesign {
            nodes: nodes(&role, cardinality, fleet, key.span, report)?,
            flavor: flavor.to_owned(),
            profile: profile.map(str::to_owned),
            labels,
            failure_domain: failure_domain.map(str::to_owned),
            written: entry.clone(),
            // Only names that turn out to be roles of this file survive; an unknown one is a finding.
            after: unique(&wishes).filter_map(|name| Role::new(name).ok()).collect(),
            role,
        })
    };
    let design = match (role, cardinality, flavor) {
        (Some(role), Some(cardinality), Some(flavor)) => design(role, cardinality, flavor, report),
        _ => None,
    };
    (design, wishes)
}

fn name(text: &str, at: Span, report: &mut Report<'_>) -> Option<Role> {
    Role::new(text)
        .map_err(|error| {
            let finding = Code::RoleName.finding(format!("{} is not a legal name of a role", quote(text)));
            report.add(at, finding.help(format!("legal: {}", error.rule)));
        })
        .ok()
}

fn cardinality(node: &Node, of: &str, report: &mut Report<'_>) -> Option<u32> {
    let expected = format!("an integer from 0 to {MOST}");
    let number = expect::integer(node, &format!("\"cardinality\" of {of}"), &expected, report)?;
    let legal = u32::try_from(number).ok().filter(|&number| number <= MOST);
    if legal.is_none() {
        let finding = Code::Cardinality.finding(format!("{of} cannot have {number} nodes"));
        report.add(node.span, finding.expected(format!("expected {expected}")));
    }
    legal
}

fn labels(node: &Node, of: &str, report: &mut Report<'_>) -> BTreeMap<String, String> {
    let what = format!("\"labels\" of {of}");
    let Some(map) = expect::mapping(node, &what, "a mapping of texts", report) else { return BTreeMap::new() };
    let mut labels = BTreeMap::new();
    for Entry { key, value } in map.entries() {
        let what = format!("label {} of {of}", quote(&key.text));
        if key.text.is_empty() {
            report.add(key.span, Code::EmptyText.finding(format!("a label of {of} has an empty name")));
        }
        // A label may be a mere mark, with an empty text; but an empty failure domain would be one that all such share.
        let text = match &*key.text {
            FAILURE_DOMAIN => expect::filled_text(value, &what, report),
            _ => expect::text(value, &what, report),
        };
        if let Some(text) = text {
            labels.insert(key.text.to_string(), text.to_owned());
        }
    }
    labels
}

fn after<'n>(node: &'n Node, of: &str, report: &mut Report<'_>) -> Vec<Wish<'n>> {
    let what = format!("\"after\" of {of}");
    let items = expect::list(node, &what, "a list of role names", report).unwrap_or_default();
    let wish = |item: &'n Node| {
        Some(Wish { name: expect::text(item, &format!("a member of {what}"), report)?, span: item.span })
    };
    items.iter().filter_map(wish).collect()
}

fn unique<'n>(wishes: &[Wish<'n>]) -> impl Iterator<Item = &'n str> {
    let mut seen = HashSet::new();
    wishes.iter().map(|wish| wish.name).filter(move |name| seen.insert(*name))
}

/// The names of the role's nodes. They are made here, and not when somebody asks for them, because here it can still
/// be said that they are not legal.
fn nodes(
    role: &Role,
    cardinality: u32,
    fleet: &mut Fleet<'_>,
    at: Span,
    report: &mut Report<'_>,
) -> Option<Vec<NodeName>> {
    if !fleet.takes(cardinality) {
        return None;
    }
    let build = |number| NodeName::build(role, number, fleet.stack);
    let names: Result<Vec<_>, _> = (1..=cardinality).map(build).collect();
    let names = match names {
        Ok(names) => names,
        Err(error) => {
            report.add(at, Code::RoleName.finding(error.to_string()));
            return None;
        }
    };
    // The last one has the highest number, and so the longest name.
    let longest = names.last().map(NodeName::host).unwrap_or_default();
    if longest.len() > LONGEST_HOST_NAME {
        let message = format!("the host name {} would have {} characters", quote(&longest), longest.len());
        let finding = Code::HostNameTooLong.finding(message);
        report.add(at, finding.help(format!("{LONGEST_HOST_NAME} is the most: shorten the role or the stack")));
        return None;
    }
    Some(names)
}

/// The same for a number that somebody else than the file says; none if there cannot be so many beside the others.
pub(super) fn names(role: &Role, cardinality: u32, stack: Option<&Stack>, others: usize) -> Option<Vec<NodeName>> {
    if cardinality > MOST || others as u64 + u64::from(cardinality) > MOST_NODES {
        return None;
    }
    let names = (1..=cardinality).map(|number| NodeName::build(role, number, stack));
    let names: Vec<NodeName> = names.collect::<Result<_, _>>().ok()?;
    names.last().is_none_or(|last| last.host().len() <= LONGEST_HOST_NAME).then_some(names)
}
