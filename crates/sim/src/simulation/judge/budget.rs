//! I3, the budget, twice: by what the decision was made on, and by what really runs.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::names::{NodeName, Role, Version};
use muster_core::rollout::record::RolloutRecord;
use muster_core::rollout::strategy::{Amount, Strategy};
use muster_core::txn::Revision;

use super::facts::{Base, Standing};
use super::{Judge, Rule, Violation};
use crate::simulation::event::MachineNumber;

/// Nodes that served, were granted something, and do not serve again yet: by what really runs on them.
#[derive(Clone, Debug, Default)]
pub(super) struct Moved(BTreeSet<NodeName>);

/// Nodes that share a budget.
#[derive(Debug, Default)]
struct Shared<'a> {
    /// How many of them have a machine.
    made: usize,
    /// Those that are or become unavailable.
    down: Vec<&'a str>,
}

impl<'a> Shared<'a> {
    fn count(&mut self, name: &'a NodeName, standing: &Standing, unavailable: bool) {
        self.made += usize::from(!standing.new);
        if unavailable {
            self.down.push(name.as_str());
        }
    }
}

/// How many of so many: as the strategy's documentation says it, and not by its code.
fn most(amount: Amount, nodes: usize) -> usize {
    let most = match amount {
        Amount::Nodes(count) => usize::try_from(count).unwrap_or(usize::MAX),
        Amount::Percent(percent) => nodes * usize::from(percent) / 100,
    };
    most.max(1)
}

/// Its value of the label that has a budget of its own.
fn value_of<'a>(strategy: &Strategy, standing: &'a Standing) -> Option<&'a str> {
    let per = strategy.max_unavailable.per.as_ref()?;
    if per.label == "failure_domain" {
        return Some(&standing.domain);
    }
    Some(standing.labels.get(&per.label).map_or("", String::as_str))
}

impl Judge {
    /// Grants that were decided on one view.
    pub(super) fn judge_budget(
        &mut self,
        strategy: &Strategy,
        record: &RolloutRecord,
        granted: &[NodeName],
        seen: Revision,
    ) -> Vec<Violation> {
        let base = self.facts.base(seen);
        let mut found = Vec::new();
        let counts = |name: &NodeName, standing: &Standing| {
            let set_aside = record.skipped.contains(name) || record.released.contains(name);
            let is_new = standing.new && standing.granted_by(record.id, &record.to).is_none();
            !set_aside && !is_new
        };
        let is_down = |name: &NodeName, standing: &Standing| counts(name, standing) && !standing.is_up(&base);
        // What is down already can be told something at no cost.
        let is_up = |name: &&NodeName| self.facts.of(name, seen).is_some_and(|standing| standing.is_up(&base));
        let costly: Vec<&NodeName> = granted.iter().filter(is_up).collect();
        let all: BTreeSet<&NodeName> = granted.iter().collect();
        // Counted once for all that are granted together: a fleet is large.
        let mut roles: BTreeMap<&Role, Shared<'_>> = BTreeMap::new();
        let mut values: BTreeMap<&str, Shared<'_>> = BTreeMap::new();
        for (name, standing) in self.facts.designed(seen).filter(|_| !costly.is_empty()) {
            let unavailable = is_down(name, standing) || (all.contains(name) && counts(name, standing));
            let of_role = roles.entry(&standing.role).or_default();
            of_role.count(name, standing, unavailable);
            if let Some(value) = value_of(strategy, standing) {
                values.entry(value).or_default().count(name, standing, unavailable);
            }
        }
        for name in costly {
            let Some(of) = self.facts.of(name, seen) else { continue };
            let Some(Shared { made, down }) = roles.get(&of.role) else { continue };
            let budget = most(strategy.max_unavailable.of(&of.role), *made);
            if down.len() > budget {
                let what = format!(
                    "{name} is granted on a view at revision {seen} in which {} of role {} are or become unavailable, and \
                     {budget} may be",
                    down.join(", "),
                    of.role
                );
                found.push(Violation { rule: Rule::Budget, what });
            }
            if let (Some(value), Some(per)) = (value_of(strategy, of), &strategy.max_unavailable.per) {
                let down = values.get(value).map(|shared| shared.down.as_slice()).unwrap_or_default();
                if down.len() > usize::try_from(per.count).unwrap_or(usize::MAX) {
                    let what = format!(
                        "{name} is granted on a view at revision {seen} in which {} of {value} are or become unavailable, \
                         and {} may be",
                        down.join(", "),
                        per.count
                    );
                    found.push(Violation { rule: Rule::Budget, what });
                }
            }
        }
        found.extend(self.judge_moved(strategy, record, granted, seen, &base));
        found
    }

    /// By what really runs: nodes that were taken out of service by grants, and are not back.
    fn judge_moved(
        &mut self,
        strategy: &Strategy,
        record: &RolloutRecord,
        granted: &[NodeName],
        seen: Revision,
        base: &Base,
    ) -> Vec<Violation> {
        let mut found = Vec::new();
        // Who was down already is told something at no cost, whoever brought it down.
        let is_up = |name: &&NodeName| self.facts.of(name, seen).is_some_and(|standing| standing.is_up(base));
        let granted: Vec<NodeName> = granted.iter().filter(is_up).cloned().collect();
        self.moved.0.extend(granted.iter().cloned());
        let set_aside = |name: &NodeName| record.skipped.contains(name) || record.released.contains(name);
        let head = self.fleet.revision;
        let mut roles: BTreeMap<&str, Vec<&NodeName>> = BTreeMap::new();
        let mut values: BTreeMap<&str, Vec<&NodeName>> = BTreeMap::new();
        for name in self.moved.0.iter().filter(|name| !set_aside(name)) {
            let Some(standing) = self.facts.of(name, head).filter(|standing| standing.designed) else { continue };
            roles.entry(standing.role.as_str()).or_default().push(name);
            if let Some(value) = value_of(strategy, standing) {
                values.entry(value).or_default().push(name);
            }
        }
        for (role, down) in roles {
            let of_role = |standing: &Standing| standing.role.as_str() == role && !standing.new;
            let nodes = self.facts.designed(head).filter(|(_, standing)| of_role(standing)).count();
            let budget = self
                .facts
                .designed(head)
                .find(|(_, standing)| standing.role.as_str() == role)
                .map_or(1, |(_, standing)| most(strategy.max_unavailable.of(&standing.role), nodes));
            if down.len() > budget && granted.iter().any(|name| down.contains(&name)) {
                let what = format!("{down:?} of role {role} were moved and do not serve again, and {budget} may be");
                found.push(Violation { rule: Rule::Budget, what });
            }
        }
        let per = strategy.max_unavailable.per.as_ref().and_then(|per| usize::try_from(per.count).ok());
        for (value, down) in values {
            if per.is_some_and(|per| down.len() > per) && granted.iter().any(|name| down.contains(&name)) {
                let what = format!("{down:?} of {value} were moved and do not serve again, and {per:?} may be");
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
