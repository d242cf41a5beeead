//! Parser of one role of an environment file.

use std::collections::{BTreeMap, HashSet};

use muster_core::names::{NodeName, Role, Stack};

use super::expect::MapFields;
use super::file::{MAX_NODES, NodeCount, StartDependency};
use super::{FAILURE_DOMAIN, RoleDesign, expect};
use crate::file_text::Span;
use crate::finding::{Code, FindingCollector, quote};
use crate::yaml::{YamlEntry, YamlNode};

const KEYS: &[&str] = &["cardinality", "flavor", "profile", "labels", "failure_domain", "after"];

/// Cardinality of a role. Four digits are enough, and a typing error does not order 100,000 machines.
const MAX_CARDINALITY: u32 = 9999;

/// Length of a host name label (RFC 1035).
const MAX_HOST_NAME: usize = 63;

/// Reads a role. Its start dependencies are returned even if the rest is invalid: they are checked with all roles.
pub(super) fn parse<'n>(
    entry: &'n YamlEntry,
    count: &mut NodeCount<'_>,
    report: &mut FindingCollector<'_>,
) -> (Option<RoleDesign>, Vec<StartDependency<'n>>) {
    let YamlEntry { key, value } = entry;
    let of = format!("role {}", quote(&key.text));
    let role = name(&key.text, key.span, report);
    let Some(map) = expect::mapping(value, &of, "a mapping with cardinality and flavor", report) else {
        return (None, Vec::new());
    };
    let fields = MapFields::check(map, &of, key.span, KEYS, report);
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
    let dependencies = fields.optional("after").map(|node| after(node, &of, report)).unwrap_or_default();

    let design = |role: Role, cardinality, flavor: &str, report: &mut FindingCollector<'_>| {
        Some(RoleDesign {
            nodes: nodes(&role, cardinality, count, key.span, report)?,
            flavor: flavor.to_owned(),
            profile: profile.map(str::to_owned),
            labels,
            failure_domain: failure_domain.map(str::to_owned),
            written: entry.clone(),
            // Unknown roles are reported by the check of the start order.
            after: unique(&dependencies).filter_map(|name| Role::new(name).ok()).collect(),
            role,
        })
    };
    let design = match (role, cardinality, flavor) {
        (Some(role), Some(cardinality), Some(flavor)) => design(role, cardinality, flavor, report),
        _ => None,
    };
    (design, dependencies)
}

fn name(text: &str, at: Span, report: &mut FindingCollector<'_>) -> Option<Role> {
    Role::new(text)
        .map_err(|error| {
            let finding = Code::RoleName.finding(format!("{} is not a legal name of a role", quote(text)));
            report.add(at, finding.help(format!("legal: {}", error.rule)));
        })
        .ok()
}

fn cardinality(node: &YamlNode, of: &str, report: &mut FindingCollector<'_>) -> Option<u32> {
    let expected = format!("an integer from 0 to {MAX_CARDINALITY}");
    let number = expect::integer(node, &format!("\"cardinality\" of {of}"), &expected, report)?;
    let legal = u32::try_from(number).ok().filter(|&number| number <= MAX_CARDINALITY);
    if legal.is_none() {
        let finding = Code::Cardinality.finding(format!("{of} cannot have {number} nodes"));
        report.add(node.span, finding.expected(format!("expected {expected}")));
    }
    legal
}

fn labels(node: &YamlNode, of: &str, report: &mut FindingCollector<'_>) -> BTreeMap<String, String> {
    let what = format!("\"labels\" of {of}");
    let Some(map) = expect::mapping(node, &what, "a mapping of texts", report) else { return BTreeMap::new() };
    let mut labels = BTreeMap::new();
    for YamlEntry { key, value } in map.entries() {
        let what = format!("label {} of {of}", quote(&key.text));
        if key.text.is_empty() {
            report.add(key.span, Code::EmptyText.finding(format!("a label of {of} has an empty name")));
        }
        // A label may be empty. An empty failure domain would be shared by all such roles.
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

fn after<'n>(node: &'n YamlNode, of: &str, report: &mut FindingCollector<'_>) -> Vec<StartDependency<'n>> {
    let what = format!("\"after\" of {of}");
    let items = expect::list(node, &what, "a list of role names", report).unwrap_or_default();
    let dependency = |item: &'n YamlNode| {
        Some(StartDependency { name: expect::text(item, &format!("a member of {what}"), report)?, span: item.span })
    };
    items.iter().filter_map(dependency).collect()
}

fn unique<'n>(dependencies: &[StartDependency<'n>]) -> impl Iterator<Item = &'n str> {
    let mut seen = HashSet::new();
    dependencies.iter().map(|dependency| dependency.name).filter(move |name| seen.insert(*name))
}

/// Names of the role's nodes. Generated here, where invalid names can be reported.
fn nodes(
    role: &Role,
    cardinality: u32,
    count: &mut NodeCount<'_>,
    at: Span,
    report: &mut FindingCollector<'_>,
) -> Option<Vec<NodeName>> {
    if !count.reserve(cardinality) {
        return None;
    }
    let build = |number| NodeName::build(role, number, count.stack);
    let names: Result<Vec<_>, _> = (1..=cardinality).map(build).collect();
    let names = match names {
        Ok(names) => names,
        Err(error) => {
            report.add(at, Code::RoleName.finding(error.to_string()));
            return None;
        }
    };
    // The last node has the longest name.
    let longest = names.last().map(NodeName::host).unwrap_or_default();
    if longest.len() > MAX_HOST_NAME {
        let message = format!("the host name {} would have {} characters", quote(&longest), longest.len());
        let finding = Code::HostNameTooLong.finding(message);
        report.add(at, finding.help(format!("{MAX_HOST_NAME} is the most: shorten the role or the stack")));
        return None;
    }
    Some(names)
}

/// Names for a cardinality that overrides the file; none if it is out of range.
pub(super) fn names(role: &Role, cardinality: u32, stack: Option<&Stack>, others: usize) -> Option<Vec<NodeName>> {
    if cardinality > MAX_CARDINALITY || others as u64 + u64::from(cardinality) > MAX_NODES {
        return None;
    }
    let names = (1..=cardinality).map(|number| NodeName::build(role, number, stack));
    let names: Vec<NodeName> = names.collect::<Result<_, _>>().ok()?;
    names.last().is_none_or(|last| last.host().len() <= MAX_HOST_NAME).then_some(names)
}
