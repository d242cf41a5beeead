//! Evaluates the node filters of boot actions: which nodes each boot action applies to.
//!
//! A boot action without a node filter selects all nodes. A filter has these conditions: the node's name is in a list;
//! the node has a tag; the node has a label; the name of its rack is in a list; its rack has a label. Each tag and each
//! label is a condition of its own. `type` decides whether one condition must hold (`union`) or all (`intersection`,
//! the default). `set` decides the same for the filters; its default is `union`.

use std::collections::HashSet;

use crate::kinds::Kind;
use crate::rules::view::{entries, items};
use crate::rules::{DocumentView, SiteView};
use crate::yaml::YamlNode;

/// Node filter of a boot action. The cost of a match does not depend on the number of names in the filter.
#[derive(Debug)]
pub(crate) struct Selector<'d> {
    is_union: bool,
    /// None selects all nodes.
    filters: Option<Vec<BootActionFilter<'d>>>,
}

#[derive(Debug)]
struct BootActionFilter<'d> {
    is_union: bool,
    node_names: Option<HashSet<&'d str>>,
    node_tags: Vec<&'d str>,
    node_labels: Vec<(&'d str, &'d str)>,
    rack_names: Option<HashSet<&'d str>>,
    rack_labels: Vec<(&'d str, &'d str)>,
}

impl<'d> Selector<'d> {
    pub(crate) fn new(boot_action: &DocumentView<'d>) -> Self {
        let node_filter = boot_action.get("node_filter");
        let filters = node_filter.map(|filter| items(filter, "filters")).unwrap_or_default();
        Selector {
            is_union: node_filter.and_then(|filter| filter.get("set")?.text()) != Some("intersection"),
            filters: (!filters.is_empty()).then(|| filters.iter().map(BootActionFilter::read).collect()),
        }
    }

    pub(crate) fn is_for_all(&self) -> bool {
        self.filters.is_none()
    }

    pub(crate) fn selects(&self, site: &SiteView<'_>, node: &DocumentView<'_>) -> bool {
        let Some(filters) = &self.filters else { return true };
        let mut fits = filters.iter().map(|filter| filter.fits(site, node));
        if self.is_union { fits.any(|fits| fits) } else { fits.all(|fits| fits) }
    }
}

impl<'d> BootActionFilter<'d> {
    fn read(node: &'d YamlNode) -> Self {
        let names = |key: &str| {
            let names = node.get(key)?.items()?;
            Some(names.iter().filter_map(YamlNode::text).collect())
        };
        let labels = |key: &str| {
            let labels = entries(node, key).iter();
            labels.filter_map(|entry| Some((&*entry.key.text, entry.value.text()?))).collect()
        };
        BootActionFilter {
            is_union: node.get("type").and_then(YamlNode::text) == Some("union"),
            node_names: names("node_names"),
            node_tags: items(node, "node_tags").iter().filter_map(YamlNode::text).collect(),
            node_labels: labels("node_labels"),
            rack_names: names("rack_names"),
            rack_labels: labels("rack_labels"),
        }
    }

    fn fits(&self, site: &SiteView<'_>, node: &DocumentView<'_>) -> bool {
        let rack = node.text("rack");
        let labels_of_rack = || rack.and_then(|rack| site.get(Kind::Rack, rack)?.get("labels"));
        let is_named = self.node_names.iter().map(|names| names.contains(node.name));
        let is_tagged = self.node_tags.iter().map(|tag| has_tag(node, tag));
        let is_labelled = self.node_labels.iter().map(|label| has_label(node.get("labels"), label));
        let is_in_rack = self.rack_names.iter().map(|names| rack.is_some_and(|rack| names.contains(rack)));
        let is_in_labelled = self.rack_labels.iter().map(|label| has_label(labels_of_rack(), label));
        let mut holds = is_named.chain(is_tagged).chain(is_labelled).chain(is_in_rack).chain(is_in_labelled);
        if self.is_union { holds.any(|holds| holds) } else { holds.all(|holds| holds) }
    }
}

fn has_tag(node: &DocumentView<'_>, tag: &str) -> bool {
    items(node.tree, "tags").iter().any(|has| has.text() == Some(tag))
}

fn has_label(labels: Option<&YamlNode>, (name, value): &(&str, &str)) -> bool {
    labels.and_then(|labels| labels.get(name)?.text()) == Some(value)
}

/// Names of the boot actions that select a node.
pub(super) fn of_node(site: &SiteView<'_>, node: &DocumentView<'_>) -> Vec<String> {
    let all = site.all(Kind::BootAction).into_iter();
    all.filter(|action| Selector::new(action).selects(site, node)).map(|action| action.name.to_owned()).collect()
}

/// Names of the nodes that a boot action selects.
pub(crate) fn nodes_of(site: &SiteView<'_>, boot_action: &DocumentView<'_>) -> Vec<String> {
    let selector = Selector::new(boot_action);
    let nodes = site.nodes().into_iter().filter(|node| selector.selects(site, node));
    nodes.map(|node| node.name.to_owned()).collect()
}
