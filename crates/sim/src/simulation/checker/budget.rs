//! Checks the budget (I3): unavailable nodes never exceed the limit, in the view of the decision and in reality.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_core::names::{NodeName, Version};
use muster_core::rollout::record::RolloutRecord;
use muster_core::rollout::strategy::{Amount, Strategy};
use muster_core::txn::Revision;

use super::facts::NodeFacts;
use super::{Checker, Rule, Violation};
use crate::simulation::event::MachineNumber;

/// Granted nodes that have not really validated again yet.
#[derive(Clone, Debug, Default)]
pub(super) struct NodesInMotion(BTreeSet<NodeName>);

/// The size of a budget, by the documentation and not by the code under test.
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
    /// Nodes that have, or had, a machine.
    made: usize,
    down: Vec<&'a NodeName>,
    /// One of them is granted and uses the budget.
    uses_budget: bool,
    most: Option<Amount>,
}

impl<'a> BudgetShare<'a> {
    fn count(&mut self, name: &'a NodeName, facts: &NodeFacts, is_down: bool, uses_budget: bool) {
        self.made += usize::from(!facts.new);
        self.uses_budget |= uses_budget;
        if is_down {
            self.down.push(name);
        }
    }
}

/// Its value of the label that has a budget.
fn value_of<'a>(strategy: &Strategy, facts: &'a NodeFacts) -> Option<&'a str> {
    let per = strategy.max_unavailable.per.as_ref()?;
    if per.label == "failure_domain" {
        return Some(&facts.domain);
    }
    Some(facts.labels.get(&per.label).map_or("", String::as_str))
}

/// Grants of one decision, on one view.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decision<'a> {
    pub(super) names: &'a [NodeName],
    pub(super) seen: Revision,
    pub(super) at: Timestamp,
}

impl Checker {
    /// Counts all unavailable nodes together: those that are down or disconnected in the view, those that a grant took
    /// down and that do not really serve again, and those that are granted now.
    pub(super) fn check_budget(
        &mut self,
        strategy: &Strategy,
        record: &RolloutRecord,
        decision: Decision<'_>,
    ) -> Vec<Violation> {
        let Decision { names: granted, seen, at } = decision;
        let base = self.facts.base(seen);
        // Granting a node that is already down is free.
        let is_up = |name: &&NodeName| {
            self.facts.state_at(name, seen).is_some_and(|facts| facts.is_up(&base) && !self.is_silent(name, facts, at))
        };
        let costly: Vec<NodeName> = granted.iter().filter(is_up).cloned().collect();
        self.moved.0.extend(costly.iter().cloned());
        let set_aside =
            |name: &NodeName| record.operator.skipped.contains(name) || record.operator.released.contains(name);
        let is_down = |name: &NodeName, facts: &NodeFacts| {
            let is_new = facts.new && facts.granted_by(record.id, &record.to).is_none();
            let is_out = !facts.is_up(&base) || self.moved.0.contains(name) || granted.contains(name);
            !set_aside(name) && !is_new && (is_out || self.is_silent(name, facts, at))
        };
        let mut roles: BTreeMap<&str, BudgetShare<'_>> = BTreeMap::new();
        let mut values: BTreeMap<&str, BudgetShare<'_>> = BTreeMap::new();
        for (name, facts) in self.facts.designed(seen) {
            let is_down = is_down(name, facts);
            let uses_budget = costly.contains(name);
            let share = roles.entry(facts.role.as_str()).or_default();
            share.most = Some(strategy.max_unavailable.for_role(&facts.role));
            share.count(name, facts, is_down, uses_budget);
            if let (Some(value), Some(per)) = (value_of(strategy, facts), &strategy.max_unavailable.per) {
                let share = values.entry(value).or_default();
                share.most = Some(Amount::Nodes(per.count));
                share.count(name, facts, is_down, uses_budget);
            }
        }
        let all = roles.into_iter().map(|(role, share)| (format!("role {role}"), share));
        let all = all.chain(values.into_iter().map(|(value, share)| (value.to_owned(), share)));
        let mut found = Vec::new();
        for (of, BudgetShare { made, down, uses_budget, most: amount }) in all {
            let budget = amount.map_or(1, |amount| most(amount, made));
            if uses_budget && down.len() > budget {
                let names: Vec<&str> = down.iter().map(|name| name.as_str()).collect();
                let what = format!(
                    "at revision {seen}, {} nodes of {of} are or become unavailable (limit {budget})",
                    names.join(", ")
                );
                found.push(Violation { rule: Rule::Budget, what });
            }
        }
        found
    }

    /// The checks of a machine have passed: at its desired version it serves again.
    pub(super) fn is_healthy(&mut self, machine: MachineNumber, version: &Version) {
        let name = &self.names[machine];
        let desired = self.fleet.desired_of(name).map(|desired| desired.version);
        if desired.as_ref() == Some(version) {
            self.moved.0.remove(name);
        }
    }
}
