//! Selects the environment to compile a design for, and builds the record of each of its nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use muster_core::names::{EnvName, HostName, NodeName, Role};
use muster_core::node::record::NodeRecord;
use muster_core::spelling;

use crate::compile::in_parallel;
use crate::documents::{Document, DocumentOrigin};
use crate::environment::{Environment, FAILURE_DOMAIN};
use crate::file_text::Span;
use crate::finding::{Code, FindingCollector, quote};
use crate::inherit::lineage::{Subject, SubjectIndex};
use crate::kinds::{AnyKind, Kind};
use crate::rules::{DocumentView, RuleFinding, RuleOutput, SiteView};
use crate::yaml::YamlNode;

use super::design::CompileOptions;
use super::load::{DesignFile, LoadedFile};

/// The failure domain of a node whose design names none.
const DEFAULT_DOMAIN: &str = "default";

/// Selects the environment file, and returns it with its source.
pub(super) fn select(
    loads: &[(DesignFile, Arc<LoadedFile>)],
    environments: &BTreeSet<EnvName>,
    options: &CompileOptions,
    report: &mut FindingCollector<'_>,
) -> Option<(Environment, usize)> {
    let all = loads.iter().flat_map(|(assigned, loaded)| loaded.environments.iter().map(|env| (env, assigned.source)));
    let names = || environments.iter().map(EnvName::as_str).collect::<Vec<_>>().join(", ");
    let wanted = match (&options.env, environments.len()) {
        (_, 0) => return None,
        (Some(wanted), _) if environments.contains(wanted) => wanted.clone(),
        (Some(wanted), _) => {
            let finding =
                Code::UnknownEnvironment.finding(format!("there is no environment {}", quote(wanted.as_str())));
            report.add_to_file(finding.help(format!("existing environments: {}", names())));
            return None;
        }
        (None, 1) => environments.first()?.clone(),
        (None, _) => {
            let finding = Code::UnknownEnvironment.finding("there are several environments, and none was selected");
            report.add_to_file(finding.help(format!("select one with --env: {}", names())));
            return None;
        }
    };
    // The file of a later source replaces the file of an earlier one.
    let files: Vec<(&Environment, usize)> = all.filter(|(environment, _)| environment.name == wanted).collect();
    for pair in files.windows(2) {
        if let [(lower, below), (upper, above)] = pair {
            check_files(lower, upper, below == above, report);
        }
    }
    let (environment, source) = *files.last()?;
    let mut environment = environment.clone();
    for (role, cardinality) in &options.cardinality {
        if !environment.set_cardinality(role, *cardinality) {
            let roles: Vec<&str> = environment.roles.iter().map(|role| role.role.as_str()).collect();
            let message = format!("role {} cannot be given {cardinality} nodes", quote(role.as_str()));
            let finding = Code::UnknownRole.finding(message);
            let near = spelling::nearest(role.as_str(), roles.iter().copied());
            let near = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
            report.add_to_file(finding.help(format!("{near}the environment's roles are {}", roles.join(", "))));
        }
    }
    Some((environment, source))
}

/// Reports two files of one environment.
fn check_files(lower: &Environment, upper: &Environment, is_one_source: bool, report: &mut FindingCollector<'_>) {
    let at = |environment: &Environment| environment.roles.first().map(|role| role.written.key.span);
    let (Some(other), Some(span)) = (at(lower), at(upper)) else { return };
    let name = quote(upper.name.as_str());
    let finding = if is_one_source {
        Code::DuplicateDocument
            .finding(format!("there are two files of environment {name} in one source"))
            .help("remove or rename one of them")
    } else {
        Code::OverlaidDocument
            .finding(format!("this file of environment {name} replaces that of an earlier source"))
            .help("environment files are not merged: remove one of them")
    };
    report.add_with_note(span, finding, "the other one is here", other);
}

/// Reports a cloud without a map file.
pub(super) fn check_cloud(environment: &Environment, index: &SubjectIndex, report: &mut FindingCollector<'_>) {
    let Some(cloud) = &environment.cloud else { return };
    let clouds = AnyKind::Known(Kind::Cloud);
    if index.find(&clouds, &cloud.name).is_none() {
        let finding = Code::DanglingReference.finding(format!("there is no cloud {}", quote(&cloud.name)));
        let help = match index.nearest(&clouds, &cloud.name) {
            Some(near) => format!("did you mean {}?", quote(near)),
            None => format!("add its map file, environments/{}.map.yaml", cloud.name),
        };
        report.add(cloud.span, finding.help(help));
    }
}

/// Reports a node of an environment that has no file.
pub(super) fn check_named(document: &Document, environments: &BTreeSet<EnvName>, report: &mut FindingCollector<'_>) {
    let Some((named, span)) = named(document) else { return };
    if !environments.is_empty() && !environments.contains(named) {
        let finding = Code::UnknownEnvironment.finding(format!("there is no environment {}", quote(named)));
        let near = spelling::nearest(named, environments.iter().map(EnvName::as_str));
        report.add(span, finding.help_if(near.map(|near| format!("did you mean {}?", quote(near)))));
    }
}

/// Reports whether a document is a node of another environment. Such documents are ignored: environments may use the
/// same node names.
pub(super) fn is_elsewhere(document: &Document, env: Option<&EnvName>) -> bool {
    named(document).zip(env).is_some_and(|((named, _), env)| named != env.as_str())
}

/// Environment named in the document of a node.
fn named(document: &Document) -> Option<(&str, Span)> {
    let of_node = document.kind == AnyKind::Known(Kind::Node);
    let node = document.body.get("environment").filter(|_| of_node)?;
    Some((node.text()?, node.span))
}

/// A node of the design.
#[derive(Clone, Debug)]
pub struct CompiledNode {
    pub name: NodeName,
    /// Record for the store.
    pub record: NodeRecord,
    /// Name of the flavor in the environment's cloud.
    pub cloud_flavor: Option<String>,
}

/// Derives the record of a node from its effective document. The position is set by [`in_order`].
pub(super) fn plan_record(site: &SiteView<'_>, subject: usize, out: &mut RuleOutput) -> Option<CompiledNode> {
    let view = site.view(subject)?;
    let name = NodeName::new(view.name).map_err(|error| {
        let finding = Code::NodeName.finding(format!("{} is not a legal name of a node", quote(view.name)));
        out.add(view.at, finding.help(format!("legal: {}", error.rule)));
    });
    let role = role(site, &view, out);
    let cloud_flavor = cloud_flavor(site, &view, out);
    let labels: BTreeMap<String, String> = view.get("labels").map(texts).unwrap_or_default();
    let failure_domain = view.text("failure_domain").map(str::to_owned).or_else(|| labels.get(FAILURE_DOMAIN).cloned());
    let record = NodeRecord {
        role: role?,
        profile: profile(site, &site.subjects[subject]),
        labels,
        failure_domain: failure_domain.unwrap_or_else(|| DEFAULT_DOMAIN.to_owned()),
        position: 0,
        flavor: cloud_flavor.clone().or_else(|| view.text("flavor").map(str::to_owned)),
        // An illegal one was reported where it is written.
        host_name: view.text("host_name").and_then(|text| HostName::new(text).ok()),
        leaving: None,
        created: None,
    };
    Some(CompiledNode { name: name.ok()?, record, cloud_flavor })
}

fn role(site: &SiteView<'_>, view: &DocumentView<'_>, out: &mut RuleOutput) -> Option<Role> {
    let Some(node) = view.get("role") else {
        // A broken environment file, which would set the role, was reported.
        if site.has_broken_environment_file {
            return None;
        }
        let finding = Code::NoRole.finding(format!("node {} has no role", quote(view.name)));
        out.add(view.at, finding.help("add it to the document's spec, for instance: role: compute"));
        return None;
    };
    let text = node.text()?;
    Role::new(text)
        .map_err(|error| {
            let finding = Code::RoleName.finding(format!("{} is not a legal name of a role", quote(text)));
            out.add(node.span, finding.help(format!("legal: {}", error.rule)));
        })
        .ok()
}

/// Last profile that the node extends.
fn profile(site: &SiteView<'_>, subject: &Subject) -> Option<String> {
    subject.lineage.last().map(|profile| site.subjects[*profile].name.to_string())
}

/// Name of the flavor in the environment's cloud.
fn cloud_flavor(site: &SiteView<'_>, view: &DocumentView<'_>, out: &mut RuleOutput) -> Option<String> {
    let cloud = site.environment?.cloud.as_ref()?;
    let flavors = site.get(Kind::Cloud, &cloud.name)?.get("flavor")?.map()?;
    let flavor = view.get("flavor")?;
    let text = flavor.text()?;
    if let Some(known) = flavors.get(text) {
        return known.value.text().map(str::to_owned);
    }
    let message = format!("the map file of cloud {} does not know the flavor {}", quote(&cloud.name), quote(text));
    let names = flavors.entries().iter().map(|entry| &*entry.key.text);
    let help = match spelling::nearest(text, names) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => format!("add it to environments/{}.map.yaml", cloud.name),
    };
    out.add(flavor.span, Code::UnknownFlavor.finding(message).help(help));
    None
}

fn texts(node: &YamlNode) -> BTreeMap<String, String> {
    let entries = node.map().map(|map| map.entries()).unwrap_or_default();
    entries.iter().filter_map(|entry| Some((entry.key.text.to_string(), entry.value.text()?.to_owned()))).collect()
}

/// Sorts and numbers the nodes: those of the environment file in its order, then the rest by name.
pub(super) fn in_order(
    mut nodes: Vec<Arc<CompiledNode>>,
    environment: Option<&Environment>,
) -> Arc<[Arc<CompiledNode>]> {
    let names = environment.into_iter().flat_map(|environment| &environment.roles).flat_map(|role| &role.nodes);
    let positions: HashMap<&NodeName, usize> = names.enumerate().map(|(at, name)| (name, at)).collect();
    let position_of = |node: &CompiledNode| positions.get(&node.name).copied().unwrap_or(usize::MAX);
    nodes.sort_by(|a, b| (position_of(a), a.name.natural()).cmp(&(position_of(b), b.name.natural())));
    for (position, node) in nodes.iter_mut().enumerate() {
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        if node.record.position != position {
            Arc::make_mut(node).record.position = position;
        }
    }
    nodes.into()
}

/// A node beyond the cardinality of its role.
pub(crate) struct SurplusNode {
    /// Cardinality of the role.
    pub cardinality: usize,
}

/// Returns the surplus of a node beyond the cardinality of its role: its name is one that the environment file would
/// generate with a higher cardinality, and it names no role itself. A role can shrink without edits to the documents of
/// its nodes.
pub(crate) fn surplus(site: &SiteView<'_>, view: &DocumentView<'_>) -> Option<SurplusNode> {
    let environment = site.environment.filter(|_| view.get("role").is_none())?;
    let name = NodeName::new(view.name).ok()?;
    let (role, number, stack) = name.natural();
    let role = environment.roles.iter().find(|known| known.role.as_str() == role)?;
    let is_of_stack = environment.stack.as_ref().map_or("", |stack| stack.as_str()) == stack;
    let cardinality = role.cardinality();
    (is_of_stack && number as usize > cardinality).then_some(SurplusNode { cardinality })
}

/// Nodes of the environment, by subject.
pub(super) fn environment_nodes(site: &SiteView<'_>, report: &mut FindingCollector<'_>) -> Vec<usize> {
    let nodes = AnyKind::Known(Kind::Node);
    let mut hosts: Vec<usize> = site.index.of_kind(&nodes).collect();
    hosts.sort_unstable();
    hosts.retain(|&host| is_in_environment(site, host, report));
    hosts
}

/// Reports whether a node belongs to the environment; adds a finding if that is ambiguous.
pub(super) fn is_in_environment(site: &SiteView<'_>, host: usize, report: &mut FindingCollector<'_>) -> bool {
    let Some(view) = site.view(host) else { return false };
    let names_environment = view.get("environment").is_some_and(|node| node.text().is_some());
    if !names_environment && site.environments.len() > 1 && site.environment.is_some() && !is_generated(site, host) {
        let message = format!("node {} does not say which environment it belongs to", quote(view.name));
        let finding = Code::WhichEnvironment.finding(message);
        report.add(view.at, finding.help("there are several: add \"environment: NAME\" to its spec"));
    }
    if let Some(node) = surplus(site, &view) {
        let message = format!("node {} is not used: its role has {}", quote(view.name), node.cardinality);
        let finding = Code::SpareNode.finding(message);
        report.add(view.at, finding.help("give the role a higher cardinality to use it, or check the number"));
        return false;
    }
    true
}

fn is_generated(site: &SiteView<'_>, subject: usize) -> bool {
    let stack = &site.subjects[subject].stack;
    stack
        .iter()
        .any(|at| site.documents[*at].as_ref().is_some_and(|document| document.origin == DocumentOrigin::Environment))
}

type CompiledNodes = (Arc<[Arc<CompiledNode>]>, HashMap<usize, Arc<[RuleFinding]>>);

pub(super) fn plan_nodes(site: &SiteView<'_>, hosts: &[usize]) -> CompiledNodes {
    let parts = in_parallel(hosts, |hosts| hosts.iter().map(|&host| plan_node(site, host)).collect::<Vec<_>>());
    let (mut nodes, mut found) = (Vec::with_capacity(hosts.len()), HashMap::new());
    for (&host, (node, raws)) in hosts.iter().zip(parts.into_iter().flatten()) {
        nodes.extend(node.map(Arc::new));
        if !raws.is_empty() {
            found.insert(host, raws.into());
        }
    }
    (in_order(nodes, site.environment), found)
}

pub(super) fn plan_node(site: &SiteView<'_>, host: usize) -> (Option<CompiledNode>, Vec<RuleFinding>) {
    let mut out = RuleOutput::for_node(site.subjects[host].name.clone());
    let node = plan_record(site, host, &mut out);
    (node, out.into_findings())
}
