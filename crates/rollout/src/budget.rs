//! Budgets of a plan: how many nodes of each role and label value may be unavailable.

use std::collections::BTreeMap;

use muster_core::fleet::Node;
use muster_core::names::{NodeName, Role};
use muster_core::node::record::NodeRecord;
use muster_core::rollout::plan::{Budgets, RoleBudget};
use muster_core::rollout::strategy::{MaxUnavailable, PerLabel};

use crate::preflight::is_unprovisioned;

/// The label name that stands for a node's failure domain.
pub const FAILURE_DOMAIN: &str = "failure_domain";

/// The node's value of the label that has a budget of its own. Nodes without the label share the empty value. None if
/// the strategy names no label.
pub fn domain_of<'a>(record: &'a NodeRecord, per: Option<&PerLabel>) -> Option<&'a str> {
    let per = per?;
    if per.label == FAILURE_DOMAIN {
        return Some(&record.failure_domain);
    }
    Some(record.labels.get(&per.label).map_or("", String::as_str))
}

/// The budgets of all roles and label values that have nodes.
///
/// A percentage counts the nodes that have, or had, a machine. Nodes that are still being provisioned serve nothing,
/// and counting them would allow a larger share of the serving nodes to be down.
pub(crate) fn budgets<'a>(
    designed: impl Iterator<Item = (&'a NodeName, &'a Node, &'a NodeRecord)>,
    max: &MaxUnavailable,
) -> Budgets {
    #[derive(Default)]
    struct Members {
        all: usize,
        made: usize,
    }
    let mut roles: BTreeMap<&Role, Members> = BTreeMap::new();
    let mut domains: BTreeMap<&str, u32> = BTreeMap::new();
    for (_, node, record) in designed {
        let members = roles.entry(&record.role).or_default();
        members.all += 1;
        members.made += usize::from(!is_unprovisioned(node));
        if let (Some(domain), Some(per)) = (domain_of(record, max.per.as_ref()), &max.per) {
            domains.insert(domain, per.count.max(1));
        }
    }
    let budget = |(role, members): (&Role, Members)| {
        let max_unavailable = number(max.for_role(role).at_least_one_of(members.made));
        (role.clone(), RoleBudget { nodes: number(members.all), max_unavailable })
    };
    Budgets {
        roles: roles.into_iter().map(budget).collect(),
        domains: domains.into_iter().map(|(domain, count)| (domain.to_owned(), count)).collect(),
    }
}

pub(crate) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
