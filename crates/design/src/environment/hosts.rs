//! Parser of `hosts`: the host names of single nodes, and a pattern for all others.
//!
//! The pattern is the key `pattern`, which no node can have as its name: the names of nodes have a number.

use std::collections::BTreeMap;

use muster_core::names::{EnvName, NodeName, Stack};
use muster_core::spelling;

use super::{RoleDesign, expect};
use crate::file_text::Span;
use crate::finding::{Code, FindingCollector, quote};
use crate::types::TextFormat;
use crate::yaml::{YamlEntry, YamlNode};

const PATTERN: &str = "pattern";

const PLACEHOLDERS: &[&str] = &["role", "num", "stack", "env"];

/// Digits that a number may be padded to. No role has more than 9999 nodes.
const MAX_DIGITS: usize = 9;

/// Host names of an environment file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostNames {
    pattern: Option<HostPattern>,
    /// Nodes with a name of their own, also those beyond the cardinality of their role.
    nodes: BTreeMap<NodeName, YamlNode>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPattern {
    parts: Vec<PatternPart>,
    span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPart {
    Text(String),
    Role,
    /// The number, with leading zeros up to this number of digits.
    Num {
        digits: usize,
    },
    Stack,
    Env,
}

impl HostNames {
    /// Host name of a node, if the file sets one.
    pub(crate) fn of(&self, node: &NodeName, env: &EnvName) -> Option<YamlNode> {
        let from_pattern = || self.pattern.as_ref().map(|pattern| pattern.host_name(node, env));
        self.nodes.get(node).cloned().or_else(from_pattern)
    }
}

impl HostPattern {
    /// Host names have no `_`: those in names are replaced, as in host names without a pattern.
    fn host_name(&self, node: &NodeName, env: &EnvName) -> YamlNode {
        let (role, number, stack) = node.natural();
        let part = |part: &PatternPart| match part {
            PatternPart::Text(text) => text.clone(),
            PatternPart::Role => role.replace('_', "-"),
            PatternPart::Num { digits } => format!("{number:0digits$}"),
            PatternPart::Stack => stack.to_owned(),
            PatternPart::Env => env.as_str().replace('_', "-"),
        };
        YamlNode::from_text(self.parts.iter().map(part).collect::<String>(), self.span)
    }
}

/// Reads `hosts`. Without legal roles, the names of nodes are not checked: they were reported, or are not known.
pub(super) fn parse(
    node: &YamlNode,
    env: Option<&EnvName>,
    stack: Option<&Stack>,
    roles: Option<&[RoleDesign]>,
    report: &mut FindingCollector<'_>,
) -> HostNames {
    let mut names = HostNames::default();
    let Some(map) = expect::mapping(node, "\"hosts\"", "a mapping of nodes to host names", report) else {
        return names;
    };
    for YamlEntry { key, value } in map.entries() {
        if &*key.text == PATTERN {
            let text = expect::filled_text(value, "the pattern of host names", report);
            names.pattern = text.and_then(|text| pattern(text, value.span, stack, report));
            continue;
        }
        let known = roles.is_none_or(|roles| check_node(&key.text, key.span, stack, roles, report));
        let what = format!("the host name of {}", quote(&key.text));
        if let Some(text) = expect::filled_text(value, &what, report)
            && check_host_name(text, value.span, "", report)
            && known
            && let Ok(node) = NodeName::new(&*key.text)
        {
            names.nodes.insert(node, value.clone());
        }
    }
    if let (Some(pattern), Some(env), Some(roles)) = (&names.pattern, env, roles) {
        let nodes = roles.iter().flat_map(|role| &role.nodes).filter(|node| !names.nodes.contains_key(*node));
        for node in nodes {
            let made = pattern.host_name(node, env);
            let note = format!(", which the pattern gives for node {},", quote(node.as_str()));
            if !check_host_name(made.text().unwrap_or_default(), made.span, &note, report) {
                break;
            }
        }
    }
    names
}

/// Reports a name that is not that of a node of the file; false then. A node beyond the cardinality of its role is a warning, since
/// a role may shrink without further edits.
fn check_node(
    name: &str,
    at: Span,
    stack: Option<&Stack>,
    roles: &[RoleDesign],
    report: &mut FindingCollector<'_>,
) -> bool {
    let parsed = NodeName::new(name).ok();
    let (role, number, of_stack) = parsed.as_ref().map_or(("", 0, ""), NodeName::natural);
    let is_of_stack = stack.map_or("", Stack::as_str) == of_stack;
    let role = roles.iter().find(|known| known.role.as_str() == role && is_of_stack && number > 0);
    if let Some(role) = role {
        let is_used = number as usize <= role.cardinality();
        if !is_used {
            let message = format!("node {} is not used: its role has {}", quote(name), role.cardinality());
            let help = "give the role a higher cardinality to use it, or check the number";
            report.add(at, Code::SpareNode.finding(message).help(help));
        }
        return true;
    }
    let nodes = || roles.iter().flat_map(|role| &role.nodes).map(NodeName::as_str);
    let with_stack = || spelling::nearest(&format!("{name}_{}", stack?), nodes());
    let help = match spelling::nearest(name, nodes()).or_else(with_stack) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => {
            let such_as = nodes().next().map(|first| format!(", such as {}", quote(first))).unwrap_or_default();
            format!("write the name of a node of this file{such_as}; a node with a document sets its host_name there")
        }
    };
    let message = format!("the environment file has no node {}", quote(name));
    report.add(at, Code::HostOfUnknownNode.finding(message).help(help));
    false
}

fn check_host_name(text: &str, at: Span, note: &str, report: &mut FindingCollector<'_>) -> bool {
    let checked = TextFormat::HostName.check(text);
    if let Err(error) = checked {
        let finding = error.code.finding(format!("{}{note} is not a legal host name", quote(text)));
        report.add(at, finding.expected(format!("expected {}", error.expected)));
    }
    checked.is_ok()
}

fn pattern(text: &str, span: Span, stack: Option<&Stack>, report: &mut FindingCollector<'_>) -> Option<HostPattern> {
    let mut refuse = |message: String, help: String| {
        report.add(span, Code::HostPattern.finding(message).help(help));
        None
    };
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, after) = rest.split_at(at);
        let Some((name, behind)) = after.strip_prefix('{').and_then(|after| after.split_once('}')) else {
            let message = "the pattern of host names has a brace without its counterpart".to_owned();
            return refuse(message, "for instance: \"{role}{num:02}.example.org\"".to_owned());
        };
        parts.extend((!before.is_empty()).then(|| PatternPart::Text(before.to_owned())));
        parts.push(match name {
            "role" => PatternPart::Role,
            "env" => PatternPart::Env,
            "stack" if stack.is_some() => PatternPart::Stack,
            "stack" => {
                let message = "the pattern of host names has {stack}, and the environment has no stack".to_owned();
                return refuse(message, "remove it, or set \"stack\"".to_owned());
            }
            _ => match digits(name) {
                Some(digits) => PatternPart::Num { digits },
                None => {
                    let word = name.split(':').next().unwrap_or_default();
                    let help = match spelling::nearest(word, PLACEHOLDERS.iter().copied()) {
                        Some("num") => "write {num}, or {num:02} for at least two digits".to_owned(),
                        Some(near) => format!("did you mean {{{near}}}?"),
                        None => "known: {role}, {num}, {num:02}, {stack}, {env}".to_owned(),
                    };
                    return refuse(format!("unknown placeholder {} in the pattern of host names", quote(name)), help);
                }
            },
        });
        rest = behind;
    }
    parts.extend((!rest.is_empty()).then(|| PatternPart::Text(rest.to_owned())));
    Some(HostPattern { parts, span })
}

/// Digits of `num`, `num:02` and so on.
fn digits(placeholder: &str) -> Option<usize> {
    match placeholder.strip_prefix("num")? {
        "" => Some(1),
        format => format.strip_prefix(":0")?.parse().ok().filter(|digits| (1..=MAX_DIGITS).contains(digits)),
    }
}
