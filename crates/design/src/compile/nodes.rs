//! Nodes of the selected environment, and their records.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use muster_core::names::{NodeName, Role};
use muster_core::node::record::NodeRecord;

use crate::compile::parallel::in_parallel;
use crate::documents::DocumentOrigin;
use crate::environment::{Environment, FAILURE_DOMAIN};
use crate::finding::{Code, Report, quote};
use crate::inherit::lineage::Subject;
use crate::kinds::{AnyKind, Kind};
use crate::rules::{DocumentView, RuleFinding, RuleOutput, Site};
use crate::yaml::Node;
use muster_core::spelling;

/// The failure domain of a node whose design names none.
const DEFAULT_DOMAIN: &str = "default";

/// A node of the design.
#[derive(Clone, Debug)]
pub struct PlannedNode {
    pub name: NodeName,
    /// Record for the store.
    pub record: NodeRecord,
    /// Name of the flavor in the environment's cloud.
    pub cloud_flavor: Option<String>,
}

/// Derives the record of a node from its effective document. The position is set by [`in_order`].
pub(super) fn plan_record(site: &Site<'_>, subject: usize, out: &mut RuleOutput) -> Option<PlannedNode> {
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
        leaving: None,
    };
    Some(PlannedNode { name: name.ok()?, record, cloud_flavor })
}

fn role(site: &Site<'_>, view: &DocumentView<'_>, out: &mut RuleOutput) -> Option<Role> {
    let Some(node) = view.get("role") else {
        // A broken environment file, which would set the role, was reported.
        if site.lacks_environment {
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
fn profile(site: &Site<'_>, subject: &Subject) -> Option<String> {
    subject.lineage.last().map(|profile| site.subjects[*profile].name.to_string())
}

/// Name of the flavor in the environment's cloud.
fn cloud_flavor(site: &Site<'_>, view: &DocumentView<'_>, out: &mut RuleOutput) -> Option<String> {
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

fn texts(node: &Node) -> BTreeMap<String, String> {
    let entries = node.map().map(|map| map.entries()).unwrap_or_default();
    entries.iter().filter_map(|entry| Some((entry.key.text.to_string(), entry.value.text()?.to_owned()))).collect()
}

/// Sorts and numbers the nodes: those of the environment file in its order, then the rest by name.
pub(super) fn in_order(mut nodes: Vec<Arc<PlannedNode>>, environment: Option<&Environment>) -> Arc<[Arc<PlannedNode>]> {
    let names = environment.into_iter().flat_map(|environment| &environment.roles).flat_map(|role| &role.nodes);
    let positions: HashMap<&NodeName, usize> = names.enumerate().map(|(at, name)| (name, at)).collect();
    let position_of = |node: &PlannedNode| positions.get(&node.name).copied().unwrap_or(usize::MAX);
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
pub(crate) fn surplus(site: &Site<'_>, view: &DocumentView<'_>) -> Option<SurplusNode> {
    let environment = site.environment.filter(|_| view.get("role").is_none())?;
    let name = NodeName::new(view.name).ok()?;
    let (role, number, stack) = name.natural();
    let role = environment.roles.iter().find(|known| known.role.as_str() == role)?;
    let is_of_stack = environment.stack.as_ref().map_or("", |stack| stack.as_str()) == stack;
    let cardinality = role.cardinality();
    (is_of_stack && number as usize > cardinality).then_some(SurplusNode { cardinality })
}

/// Nodes of the environment, by subject.
pub(super) fn environment_nodes(site: &Site<'_>, report: &mut Report<'_>) -> Vec<usize> {
    let nodes = AnyKind::Known(Kind::Node);
    let mut hosts: Vec<usize> = site.index.of_kind(&nodes).collect();
    hosts.sort_unstable();
    hosts.retain(|&host| is_in_environment(site, host, report));
    hosts
}

/// Reports whether a node belongs to the environment; adds a finding if that is ambiguous.
pub(super) fn is_in_environment(site: &Site<'_>, host: usize, report: &mut Report<'_>) -> bool {
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
        report.add(view.at, finding.help("give the role a higher cardinality to use it, or look at the number"));
        return false;
    }
    true
}

fn is_generated(site: &Site<'_>, subject: usize) -> bool {
    let stack = &site.subjects[subject].stack;
    stack
        .iter()
        .any(|at| site.documents[*at].as_ref().is_some_and(|document| document.origin == DocumentOrigin::Environment))
}

type PlannedNodes = (Arc<[Arc<PlannedNode>]>, HashMap<usize, Arc<[RuleFinding]>>);

pub(super) fn plan_nodes(site: &Site<'_>, hosts: &[usize]) -> PlannedNodes {
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

pub(super) fn plan_node(site: &Site<'_>, host: usize) -> (Option<PlannedNode>, Vec<RuleFinding>) {
    let mut out = RuleOutput::for_node(site.subjects[host].name.clone());
    let node = plan_record(site, host, &mut out);
    (node, out.into_findings())
}
