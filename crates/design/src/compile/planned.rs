//! The nodes of the environment, as the rest of Muster takes them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use muster_core::names::{NodeName, Role};
use muster_core::node::record::NodeRecord;

use crate::environment::{Environment, FAILURE_DOMAIN};
use crate::finding::{Code, quote};
use crate::inherit::lineage::Subject;
use crate::kinds::Kind;
use crate::rules::{Out, Site, Thing};
use crate::spelling;
use crate::yaml::Node;

/// The failure domain of a node whose design names none.
const DEFAULT_DOMAIN: &str = "default";

/// A node that should be there.
#[derive(Clone, Debug)]
pub struct PlannedNode {
    pub name: NodeName,
    /// What the store keeps of it.
    pub record: NodeRecord,
    /// What its flavor is called in the environment's cloud.
    pub cloud_flavor: Option<String>,
}

/// Makes a node of an effective document, or says why not. Its position is given later.
pub(super) fn plan(site: &Site<'_>, subject: usize, out: &mut Out) -> Option<PlannedNode> {
    let thing = site.thing(subject)?;
    let name = NodeName::new(thing.name).map_err(|error| {
        let finding = Code::NodeName.finding(format!("{} is not a legal name of a node", quote(thing.name)));
        out.add(thing.at, finding.help(format!("legal: {}", error.rule)));
    });
    let role = role(site, &thing, out);
    let cloud_flavor = cloud_flavor(site, &thing, out);
    let labels: BTreeMap<String, String> = thing.get("labels").map(texts).unwrap_or_default();
    let failure_domain =
        thing.text("failure_domain").map(str::to_owned).or_else(|| labels.get(FAILURE_DOMAIN).cloned());
    let record = NodeRecord {
        role: role?,
        profile: profile(site, &site.subjects[subject]),
        labels,
        failure_domain: failure_domain.unwrap_or_else(|| DEFAULT_DOMAIN.to_owned()),
        position: 0,
        flavor: cloud_flavor.clone().or_else(|| thing.text("flavor").map(str::to_owned)),
        leaving: None,
    };
    Some(PlannedNode { name: name.ok()?, record, cloud_flavor })
}

fn role(site: &Site<'_>, thing: &Thing<'_>, out: &mut Out) -> Option<Role> {
    let Some(node) = thing.get("role") else {
        // The environment file would say it, and what is wrong with that has been reported.
        if site.lacks_environment {
            return None;
        }
        let finding = Code::NoRole.finding(format!("node {} has no role", quote(thing.name)));
        out.add(thing.at, finding.help("add it to the document's spec, for instance: role: compute"));
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

/// The uppermost profile that the node extends.
fn profile(site: &Site<'_>, subject: &Subject) -> Option<String> {
    subject.lineage.last().map(|profile| site.subjects[*profile].name.to_string())
}

/// What the flavor is called in the environment's cloud.
fn cloud_flavor(site: &Site<'_>, thing: &Thing<'_>, out: &mut Out) -> Option<String> {
    let cloud = site.environment?.cloud.as_ref()?;
    let flavors = site.get(Kind::Cloud, &cloud.name)?.get("flavor")?.map()?;
    let flavor = thing.get("flavor")?;
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

/// Puts nodes in order: those of the environment file as it has them, then the others by name; and numbers them.
pub(super) fn in_order(mut nodes: Vec<Arc<PlannedNode>>, environment: Option<&Environment>) -> Arc<[Arc<PlannedNode>]> {
    let names = environment.into_iter().flat_map(|environment| &environment.roles).flat_map(|role| &role.nodes);
    let places: HashMap<&NodeName, usize> = names.enumerate().map(|(at, name)| (name, at)).collect();
    let place = |node: &PlannedNode| places.get(&node.name).copied().unwrap_or(usize::MAX);
    nodes.sort_by(|a, b| (place(a), a.name.natural()).cmp(&(place(b), b.name.natural())));
    for (position, node) in nodes.iter_mut().enumerate() {
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        if node.record.position != position {
            Arc::make_mut(node).record.position = position;
        }
    }
    nodes.into()
}

/// A node that is described beyond the number of nodes that its role has.
pub(crate) struct Spare {
    /// How many nodes the role has.
    pub cardinality: usize,
}

/// Whether a document describes a node that its role has no use for, for now: its name is one that the environment file
/// would make if the role had more nodes, and it says nothing of a role itself. Shrinking a role must not need its nodes'
/// addresses to be taken out.
pub(crate) fn spare(site: &Site<'_>, thing: &Thing<'_>) -> Option<Spare> {
    let environment = site.environment.filter(|_| thing.get("role").is_none())?;
    let name = NodeName::new(thing.name).ok()?;
    let (role, number, stack) = name.natural();
    let role = environment.roles.iter().find(|known| known.role.as_str() == role)?;
    let is_of_stack = environment.stack.as_ref().map_or("", |stack| stack.as_str()) == stack;
    let cardinality = role.cardinality();
    (is_of_stack && number as usize > cardinality).then_some(Spare { cardinality })
}
