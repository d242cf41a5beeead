//! Rules for the rollout section of an environment that depend on the nodes.

use std::collections::BTreeSet;

use crate::environment::FAILURE_DOMAIN;
use crate::finding::{Code, quote};
use crate::rules::{RuleOutput, Site};
use muster_core::spelling;

/// Reports a budget that is counted by a label that no node has.
pub(super) fn budget_label_unknown(site: &Site<'_>, out: &mut RuleOutput) {
    let Some(environment) = site.environment else { return };
    let per = environment.rollout.as_ref().and_then(|strategy| strategy.max_unavailable.per.as_ref());
    // Every node has a failure domain, if only the default one.
    let Some((per, at)) = per.zip(environment.label).filter(|(per, _)| per.label != FAILURE_DOMAIN) else { return };
    let nodes = site.nodes();
    let maps = nodes.iter().filter_map(|node| node.get("labels")?.map());
    let labels: BTreeSet<&str> = maps.flat_map(|map| map.entries()).map(|entry| &*entry.key.text).collect();
    if nodes.is_empty() || labels.contains(per.label.as_str()) {
        return;
    }
    let message = format!(
        "no node has a label {}: all of them together may have {} unavailable",
        quote(&per.label),
        match per.count {
            1 => "one".to_owned(),
            count => count.to_string(),
        }
    );
    let help = match spelling::nearest(&per.label, labels.iter().copied()) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => "give it to the roles or nodes, or write failure_domain, which every node has".to_owned(),
    };
    out.add(at, Code::LabelOfNobody.finding(message).help(help));
}
