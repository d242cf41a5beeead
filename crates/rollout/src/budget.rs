//! How many nodes may be unavailable, in numbers.

use std::collections::BTreeMap;

use muster_core::fleet::Node;
use muster_core::names::{NodeName, Role};
use muster_core::node::record::NodeRecord;
use muster_core::rollout::plan::{Budgets, RoleBudget};
use muster_core::rollout::strategy::{MaxUnavailable, PerLabel};

use crate::unwell::is_still_being_made;

/// The name of a node's failure domain, where a label is asked for.
pub const FAILURE_DOMAIN: &str = "failure_domain";

/// Which budget of its own, beside that of its role, a node uses up: its value of the label. Those without the label share
/// one, which is called by an empty name. None if the strategy speaks of no label.
pub fn domain_of<'a>(record: &'a NodeRecord, per: Option<&PerLabel>) -> Option<&'a str> {
    let per = per?;
    if per.label == FAILURE_DOMAIN {
        return Some(&record.failure_domain);
    }
    Some(record.labels.get(&per.label).map_or("", String::as_str))
}

/// The budgets of all roles and domains that have nodes.
///
/// A share is one of the nodes that have a machine, or had one: those that are still being made serve nobody, and while
/// there are many of them, a share of all would be a larger one of those that do.
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
        members.made += usize::from(!is_still_being_made(node));
        if let (Some(domain), Some(per)) = (domain_of(record, max.per.as_ref()), &max.per) {
            domains.insert(domain, per.count.max(1));
        }
    }
    let budget = |(role, members): (&Role, Members)| {
        let max_unavailable = number(max.of(role).at_least_one_of(members.made));
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
