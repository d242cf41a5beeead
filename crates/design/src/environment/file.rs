//! Parser of environment files, and the start order of roles from their `after` lists.

use std::collections::HashMap;
use std::path::Path;

use muster_core::names::{EnvName, Stack};
use muster_core::release::manifest::ReleaseEnv;
use muster_core::spelling;

use crate::file_text::{FileText, Span};
use crate::finding::{Code, FindingCollector, Findings, WithWarnings, quote};
use crate::graph::{GraphCycle, GraphEdge};
use crate::strategy::StrategySection;
use crate::yaml::{Limits, YamlNode};
use crate::{graph, strategy, yaml};

use super::expect::MapFields;
use super::hosts::{self, HostNames};
use super::{Cloud, Environment, RoleDesign, expect, role};

const KEYS: &[&str] = &["version", "roles", "stack", "cloud", "hosts", "rollout"];

/// Supported format version.
const FORMAT: i64 = 1;

/// Nodes of one environment: twice the number that Muster is built and measured for. Without a limit, 1 MiB of roles with
/// a cardinality of 9999 each would give some 300 million nodes.
pub(crate) const MAX_NODES: u64 = 100_000;

const EXAMPLE: &str = "{web: {cardinality: 2, flavor: small}}";

pub(super) fn parse(source: &FileText) -> Result<WithWarnings<Environment>, Findings> {
    let mut report = FindingCollector::new(source);
    let documents = yaml::parse_into(source, &mut report, &Limits::HANDWRITTEN);
    let environment = from_trees(source, &documents, &mut report);
    let findings = report.finish();
    match environment {
        Some(value) => Ok(WithWarnings { value, warnings: findings }),
        None => Err(findings),
    }
}

/// Returns none only after reporting a finding.
pub(super) fn from_trees(
    source: &FileText,
    documents: &[YamlNode],
    report: &mut FindingCollector<'_>,
) -> Option<Environment> {
    let name = name(source, report);
    let content = the_document(documents, report).and_then(|document| content(document, name.as_ref(), report));
    let EnvironmentContent { stack, cloud, roles, hosts, start_order, rollout } =
        content.filter(|_| !report.has_errors())?;
    let label = rollout.as_ref().and_then(|section| section.label);
    let rollout = rollout.map(|section| section.strategy);
    Some(Environment { name: name?, stack, cloud, roles, hosts, rollout, start_order, label })
}

fn name(source: &FileText, report: &mut FindingCollector<'_>) -> Option<EnvName> {
    let stem = Path::new(source.name()).file_stem().unwrap_or_default().to_string_lossy();
    if stem == ReleaseEnv::ANY {
        let message = format!("the file's name, {}, is reserved", quote(&stem));
        let help = "the manifest of a release has it for all environments: rename the file";
        report.add_to_file(Code::EnvironmentName.finding(message).help(help));
        return None;
    }
    EnvName::new(stem.clone())
        .map_err(|error| {
            let message = format!("the file's name, {}, is not a legal name of an environment", quote(&stem));
            report.add_to_file(Code::EnvironmentName.finding(message).help(format!("legal: {}", error.rule)));
        })
        .ok()
}

/// The single document of the file. A file that cannot be parsed was reported, and is not reported as empty.
fn the_document<'d>(documents: &'d [YamlNode], report: &mut FindingCollector<'_>) -> Option<&'d YamlNode> {
    if let Some(second) = documents.get(1) {
        let finding = Code::SeveralDocuments
            .finding("an environment file must have one document; this is a second one")
            .help("give each environment its own file, or remove the line ---");
        report.add(second.span, finding);
    }
    match documents.first() {
        Some(document) if !document.is_null() => Some(document),
        _ if report.has_errors() => None,
        _ => {
            let finding = Code::EmptyFile.finding("the environment file is empty");
            report.add_to_file(finding.help(format!("write at least: roles: {EXAMPLE}")));
            None
        }
    }
}

/// Nodes of the roles that were parsed so far.
pub(super) struct NodeCount<'s> {
    pub(super) stack: Option<&'s Stack>,
    nodes: u64,
}

impl NodeCount<'_> {
    /// Counts the nodes of a role; false if the limit is exceeded, so that no names are generated.
    pub(super) fn reserve(&mut self, cardinality: u32) -> bool {
        self.nodes += u64::from(cardinality);
        self.nodes <= MAX_NODES
    }

    fn check_size(&self, at: Span, report: &mut FindingCollector<'_>) {
        if self.nodes > MAX_NODES {
            let message = format!("the environment has {} nodes; {MAX_NODES} is the most", self.nodes);
            report.add(at, Code::TooManyNodes.finding(message).help("split it into several environments"));
        }
    }
}

struct EnvironmentContent {
    stack: Option<Stack>,
    cloud: Option<Cloud>,
    roles: Vec<RoleDesign>,
    hosts: HostNames,
    start_order: Vec<usize>,
    rollout: Option<StrategySection>,
}

fn content(
    document: &YamlNode,
    env: Option<&EnvName>,
    report: &mut FindingCollector<'_>,
) -> Option<EnvironmentContent> {
    let of = "the environment";
    let map = expect::mapping(document, of, "a mapping with the key \"roles\"", report)?;
    let at = map.entries().first().map_or(document.span, |entry| entry.key.span);
    let fields = MapFields::check(map, of, at, KEYS, report);
    check_format(&fields, report);
    let stack = stack(&fields, report);
    let cloud = cloud(&fields, report);
    let rollout = rollout(&fields, report);
    let node = fields.required("roles", EXAMPLE, report)?;
    let map = expect::mapping(node, "\"roles\"", "a mapping of role names", report)?;
    let entries = map.entries();
    if entries.is_empty() && !map.has_refused() {
        let finding = Code::NoRoles.finding("the environment has no roles").expected("expected a role");
        report.add(node.span, finding.help(format!("for instance: roles: {EXAMPLE}")));
    }
    let mut count = NodeCount { stack: stack.as_ref(), nodes: 0 };
    let (roles, dependencies): (Vec<_>, Vec<_>) =
        entries.iter().map(|entry| role::parse(entry, &mut count, report)).unzip();
    count.check_size(node.span, report);
    let names: Vec<&str> = entries.iter().map(|entry| &*entry.key.text).collect();
    let start_order = start_order(&names, &dependencies, report);
    // A single invalid role invalidates the environment; its findings are in the report.
    let roles: Option<Vec<RoleDesign>> = roles.into_iter().collect::<Option<_>>().filter(|_| !map.has_refused());
    let hosts = fields.optional("hosts").map(|node| hosts::parse(node, env, stack.as_ref(), roles.as_deref(), report));
    Some(EnvironmentContent {
        stack,
        cloud,
        roles: roles?,
        hosts: hosts.unwrap_or_default(),
        start_order: start_order?,
        rollout,
    })
}

fn check_format(fields: &MapFields<'_, '_>, report: &mut FindingCollector<'_>) {
    let Some(node) = fields.optional("version") else { return };
    let Some(version) = expect::integer(node, "\"version\"", "an integer", report) else { return };
    if version != FORMAT {
        let message = format!("the file is of format version {version}, which this version of Muster does not support");
        let finding = Code::FormatVersion.finding(message).expected(format!("expected {FORMAT}"));
        report.add(node.span, finding.help("this is the version of the file format, not of your configuration"));
    }
}

fn stack(fields: &MapFields<'_, '_>, report: &mut FindingCollector<'_>) -> Option<Stack> {
    let node = fields.optional("stack")?;
    let text = expect::text(node, "\"stack\"", report)?;
    Stack::new(text)
        .map_err(|error| {
            let finding = Code::StackName.finding(format!("{} is not a legal name of a stack", quote(text)));
            report.add(node.span, finding.help(format!("legal: {}", error.rule)));
        })
        .ok()
}

fn cloud(fields: &MapFields<'_, '_>, report: &mut FindingCollector<'_>) -> Option<Cloud> {
    let node = fields.optional("cloud")?;
    let name = expect::filled_text(node, "\"cloud\"", report)?;
    Some(Cloud { name: name.to_owned(), span: node.span })
}

fn rollout(fields: &MapFields<'_, '_>, report: &mut FindingCollector<'_>) -> Option<StrategySection> {
    let node = fields.optional("rollout")?;
    let roles = fields.optional("roles").and_then(YamlNode::map).filter(|roles| !roles.has_refused());
    let names: Option<Vec<&str>> = roles.map(|roles| roles.entries().iter().map(|entry| &*entry.key.text).collect());
    strategy::section(node, names.as_deref(), report)
}

/// A name in a role's `after`.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartDependency<'n> {
    pub(super) name: &'n str,
    pub(super) span: Span,
}

/// Sorts roles, by index, after their dependencies, otherwise in the order of the file. `None` if there is a cycle.
fn start_order(
    names: &[&str],
    dependencies: &[Vec<StartDependency<'_>>],
    report: &mut FindingCollector<'_>,
) -> Option<Vec<usize>> {
    let index: HashMap<&str, usize> = names.iter().enumerate().map(|(index, name)| (*name, index)).collect();
    let edges: Vec<Vec<GraphEdge>> =
        dependencies.iter().map(|dependencies| edges(dependencies, &index, names, report)).collect();
    let found = graph::order(&edges);
    for cycle in &found.cycles {
        report_cycle(cycle, names, report);
    }
    found.cycles.is_empty().then_some(found.order)
}

fn edges(
    dependencies: &[StartDependency<'_>],
    index: &HashMap<&str, usize>,
    names: &[&str],
    report: &mut FindingCollector<'_>,
) -> Vec<GraphEdge> {
    let mut edges: Vec<GraphEdge> = Vec::new();
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for dependency in dependencies {
        if let Some(&first) = seen.get(dependency.name) {
            let finding = Code::AfterTwice
                .finding(format!("role {} is listed twice", quote(dependency.name)))
                .help("remove one of the two");
            report.add_with_note(dependency.span, finding, "the first one is here", first);
            continue;
        }
        seen.insert(dependency.name, dependency.span);
        match index.get(dependency.name) {
            Some(&to) => edges.push(GraphEdge { to, span: dependency.span }),
            None => {
                let help = match spelling::nearest(dependency.name, names.iter().copied()) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => "\"after\" names roles of the same file".to_owned(),
                };
                let finding = Code::AfterUnknown.finding(format!("there is no role {}", quote(dependency.name)));
                report.add(dependency.span, finding.help(help));
            }
        }
    }
    edges
}

fn report_cycle(cycle: &GraphCycle, names: &[&str], report: &mut FindingCollector<'_>) {
    let (message, help) = match cycle.members.as_slice() {
        [role] => (format!("role {} comes after itself", quote(names[*role])), "remove it"),
        _ => (
            format!("roles come after each other in a cycle: {}", cycle.format(|role| names[role].to_owned())),
            "remove one of these entries, so that the roles have a start order",
        ),
    };
    report.add(cycle.closing.span, Code::AfterCycle.finding(message).help(help));
}
