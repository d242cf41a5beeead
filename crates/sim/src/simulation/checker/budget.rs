//! I3, the budget: by what the decision was made on, and by what really runs.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_core::names::{NodeName, Version};
use muster_core::rollout::record::RolloutRecord;
use muster_core::rollout::strategy::{Amount, Strategy};
use muster_core::txn::Revision;

use super::facts::NodeFacts;
use super::{Checker, Rule, Violation};
use crate::simulation::event::MachineNumber;

/// Nodes that served, were granted something, and do not serve again yet: by what really runs on them.
#[derive(Clone, Debug, Default)]
pub(super) struct NodesInMotion(BTreeSet<NodeName>);

/// How many of so many: as the strategy's documentation says it, and not by its code.
fn most(amount: Amount, nodes: usize) -> usize {
    let most = match amount {
        Amount::Nodes(count) => usize::try_from(count).unwrap_or(usize::MAX),
        Amount::Percent(percent) => nodes * usize::from(percent) / 100,
    };
    most.max(1)
}

/// Nodes that share a budget.
#[derive(Clone, Debug, Default)]
struct BudgetShare<'a> {
    /// Those that have a machine, or had one.
    made: usize,
    down: Vec<&'a NodeName>,
    /// One of them is granted something that costs.
    asks: bool,
    most: Option<Amount>,
}

impl<'a> BudgetShare<'a> {
    fn count(&mut self, name: &'a NodeName, standing: &NodeFacts, is_down: bool, asks: bool) {
        self.made += usize::from(!standing.new);
        self.asks |= asks;
        if is_down {
            self.down.push(name);
        }
    }
}

/// Its value of the label that has a budget of its own.
fn value_of<'a>(strategy: &Strategy, standing: &'a NodeFacts) -> Option<&'a str> {
    let per = strategy.max_unavailable.per.as_ref()?;
    if per.label == "failure_domain" {
        return Some(&standing.domain);
    }
    Some(standing.labels.get(&per.label).map_or("", String::as_str))
}

/// Grants that were decided together, on one view.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decision<'a> {
    pub(super) names: &'a [NodeName],
    pub(super) seen: Revision,
    pub(super) at: Timestamp,
}

impl Checker {
    /// Whoever is out of service counts, together: who was not up in the view, or not heard of; who was taken out of service by
    /// a grant and does not really serve again, whatever the store says; and who is granted something now.
    pub(super) fn check_budget(
        &mut self,
        strategy: &Strategy,
        record: &RolloutRecord,
        decision: Decision<'_>,
    ) -> Vec<Violation> {
        let Decision { names: granted, seen, at } = decision;
        let base = self.facts.base(seen);
        // Who is down already is told something at no cost, whoever brought it down.
        let is_up = |name: &&NodeName| {
            self.facts
                .of(name, seen)
                .is_some_and(|standing| standing.is_up(&base) && !self.is_silent(name, standing, at))
        };
        let costly: Vec<NodeName> = granted.iter().filter(is_up).cloned().collect();
        self.moved.0.extend(costly.iter().cloned());
        let set_aside = |name: &NodeName| record.skipped.contains(name) || record.released.contains(name);
        let is_down = |name: &NodeName, standing: &NodeFacts| {
            let is_new = standing.new && standing.granted_by(record.id, &record.to).is_none();
            let is_out = !standing.is_up(&base) || self.moved.0.contains(name) || granted.contains(name);
            !set_aside(name) && !is_new && (is_out || self.is_silent(name, standing, at))
        };
        let mut roles: BTreeMap<&str, BudgetShare<'_>> = BTreeMap::new();
        let mut values: BTreeMap<&str, BudgetShare<'_>> = BTreeMap::new();
        for (name, standing) in self.facts.designed(seen) {
            let is_down = is_down(name, standing);
            let asks = costly.contains(name);
            let share = roles.entry(standing.role.as_str()).or_default();
            share.most = Some(strategy.max_unavailable.of(&standing.role));
            share.count(name, standing, is_down, asks);
            if let (Some(value), Some(per)) = (value_of(strategy, standing), &strategy.max_unavailable.per) {
                let share = values.entry(value).or_default();
                share.most = Some(Amount::Nodes(per.count));
                share.count(name, standing, is_down, asks);
            }
        }
        let all = roles.into_iter().map(|(role, share)| (format!("role {role}"), share));
        let all = all.chain(values.into_iter().map(|(value, share)| (value.to_owned(), share)));
        let mut found = Vec::new();
        for (of, BudgetShare { made, down, asks, most: amount }) in all {
            let budget = amount.map_or(1, |amount| most(amount, made));
            if asks && down.len() > budget {
                let names: Vec<&str> = down.iter().map(|name| name.as_str()).collect();
                let what = format!(
                    "at revision {seen} {} of {of} are or become unavailable, and {budget} may be",
                    names.join(", ")
                );
                found.push(Violation { rule: Rule::Budget, what });
            }
        }
        found
    }

    /// The checks of a machine have passed: if that is at what it was told, it serves again.
    pub(super) fn is_healthy(&mut self, machine: MachineNumber, version: &Version) {
        let name = &self.names[machine];
        let told = self.fleet.desired_of(name).map(|desired| desired.version);
        if told.as_ref() == Some(version) {
            self.moved.0.remove(name);
        }
    }
}
