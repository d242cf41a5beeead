//! Which nodes belong to the environment, and what becomes of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::parallel::in_parallel;
use super::planned::{self, PlannedNode};
use crate::document::Maker;
use crate::finding::{Code, Report, quote};
use crate::kinds::{AnyKind, Kind};
use crate::rules::{Out, Raw, Site};

/// The nodes that belong to the environment, by subject.
pub(super) fn hosts(site: &Site<'_>, report: &mut Report<'_>) -> Vec<usize> {
    let nodes = AnyKind::Known(Kind::Node);
    let mut hosts: Vec<usize> = site.index.of_kind(&nodes).collect();
    hosts.sort_unstable();
    hosts.retain(|&host| is_host(site, host, report));
    hosts
}

/// Whether a node belongs to the environment; what is not clear about that is reported.
pub(super) fn is_host(site: &Site<'_>, host: usize, report: &mut Report<'_>) -> bool {
    let Some(thing) = site.thing(host) else { return false };
    let is_said = thing.get("environment").is_some_and(|node| node.text().is_some());
    if !is_said && site.environments.len() > 1 && site.environment.is_some() && !is_generated(site, host) {
        let message = format!("node {} does not say which environment it belongs to", quote(thing.name));
        let finding = Code::WhichEnvironment.finding(message);
        report.add(thing.at, finding.help("there are several: add \"environment: NAME\" to its spec"));
    }
    if let Some(spare) = planned::spare(site, &thing) {
        let message = format!("node {} is not used: its role has {}", quote(thing.name), spare.cardinality);
        let finding = Code::SpareNode.finding(message);
        report.add(thing.at, finding.help("give the role a higher cardinality to use it, or look at the number"));
        return false;
    }
    true
}

fn is_generated(site: &Site<'_>, subject: usize) -> bool {
    let stack = &site.subjects[subject].stack;
    stack.iter().any(|at| site.documents[*at].as_ref().is_some_and(|document| document.maker == Maker::Environment))
}

type Planned = (Arc<[Arc<PlannedNode>]>, HashMap<usize, Arc<[Raw]>>);

pub(super) fn plan(site: &Site<'_>, hosts: &[usize]) -> Planned {
    let parts = in_parallel(hosts, |hosts| hosts.iter().map(|&host| plan_one(site, host)).collect::<Vec<_>>());
    let (mut nodes, mut found) = (Vec::with_capacity(hosts.len()), HashMap::new());
    for (&host, (node, raws)) in hosts.iter().zip(parts.into_iter().flatten()) {
        nodes.extend(node.map(Arc::new));
        if !raws.is_empty() {
            found.insert(host, raws.into());
        }
    }
    (planned::in_order(nodes, site.environment), found)
}

pub(super) fn plan_one(site: &Site<'_>, host: usize) -> (Option<PlannedNode>, Vec<Raw>) {
    let mut out = Out::of_node(site.subjects[host].name.clone());
    let node = planned::plan(site, host, &mut out);
    (node, out.into_raws())
}
