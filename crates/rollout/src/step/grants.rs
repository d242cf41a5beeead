//! Chooses the nodes that may be granted now, within budgets, ramp and brake.

use muster_core::rollout::plan::PlannedWave;
use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::{DesiredRecord, RolloutRecord};

use crate::decision::{DecisionInput, max_grants};
use crate::health::{Health, later};

use super::{Grant, IndexedPlan, NodeFacts, Survey};

/// Receives the reason why a node may not move now.
pub(crate) type OnRefused<'f> = &'f mut dyn FnMut(&NodeFacts, Hold);

/// The budgets, and how much of them is used.
pub(crate) struct BudgetTracker<'s> {
    plan: &'s IndexedPlan,
    record: &'s RolloutRecord,
    survey: &'s Survey,
    input: &'s DecisionInput<'s>,
    roles: Vec<Slots>,
    domains: Vec<Slots>,
    /// Granted, unfinished nodes of each wave.
    moving: Vec<usize>,
    /// Waves that have passed.
    passed: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slots {
    used: usize,
    max: usize,
}

impl<'s> BudgetTracker<'s> {
    pub(crate) fn new(
        plan: &'s IndexedPlan,
        record: &'s RolloutRecord,
        survey: &'s Survey,
        input: &'s DecisionInput<'s>,
    ) -> Self {
        let strategy = &plan.plan().strategy;
        let budgets = &plan.plan().budgets;
        let roles = survey.roles.all.iter().map(|(name, tally)| {
            // A role that has shrunk since the plan was made has a smaller budget. One that has grown keeps the planned
            // budget.
            let now = strategy.max_unavailable.for_role(name).at_least_one_of(tally.nodes);
            let planned = budgets.roles.get(name).and_then(|budget| usize::try_from(budget.max_unavailable).ok());
            Slots { used: tally.unavailable, max: planned.map_or(now, |planned| planned.min(now)) }
        });
        let domains = survey.domains.all.iter().map(|(_, tally)| {
            let count = strategy.max_unavailable.per.as_ref().map_or(1, |per| per.count);
            Slots { used: tally.unavailable, max: usize::try_from(count).unwrap_or(usize::MAX) }
        });
        Self {
            plan,
            record,
            survey,
            input,
            roles: roles.collect(),
            domains: domains.collect(),
            moving: survey.waves.iter().map(|wave| wave.moving).collect(),
            passed: record.waves.iter().filter(|wave| wave.passed.is_some()).count(),
        }
    }

    /// Selects the nodes that may move now, in the order of the plan. `refused` gets the reason for each other node. Without
    /// it no reason is computed.
    pub(crate) fn choose(&mut self, mut refused: Option<OnRefused<'_>>) -> Vec<Grant> {
        let mut grants = Vec::new();
        let survey = self.survey;
        for fact in survey.in_order(self.plan, self.record.waves.len()) {
            if fact.health != Health::Waiting {
                continue;
            }
            // The rest has no reason to wait, and nothing needs to be checked.
            if refused.is_none() && grants.len() >= max_grants(self.input.max_ops) {
                break;
            }
            match self.check(fact, grants.len(), refused.is_some()) {
                Ok(()) => grants.extend(self.grant(fact)),
                Err(Some(hold)) => {
                    if let Some(refused) = &mut refused {
                        refused(fact, *hold);
                    }
                }
                Err(None) => {}
            }
        }
        grants
    }

    /// True if a node may move now. The reason is computed only if `explain` is set: a step checks thousands of nodes and
    /// needs none. A node that follows in the next transaction has no reason.
    fn check(&self, fact: &NodeFacts, granted: usize, explain: bool) -> Result<(), Option<Box<Hold>>> {
        let wave = fact.wave.unwrap_or_default();
        let held = |hold: &dyn Fn() -> Option<Hold>| Err(if explain { hold().map(Box::new) } else { None });
        let name = || self.survey.name(fact).cloned();
        let role = || self.survey.role(fact).cloned();
        if let Some(before) = self.role_before(fact) {
            return held(&|| Some(Hold::Turn { stage: before.stage, wave: before.wave }));
        }
        if let Some(since) = fact.silent {
            return held(&|| Some(Hold::Silent { node: name()?, since }));
        }
        if fact.is_cordoned {
            return held(&|| {
                let node = name()?;
                let cordon = self.input.fleet.get(&node)?.cordon()?.clone();
                Some(Hold::Cordoned { node, cordon })
            });
        }
        if self.is_paused(fact) {
            return held(&|| {
                let node = name()?;
                let paused = self.input.fleet.pause_of(&node, &role()?, self.input.now)?;
                Some(Hold::Paused { node, paused })
            });
        }
        if self.survey.failure_domains.all.get(fact.failure_domain).is_some_and(|(_, tally)| tally.is_braked()) {
            return held(&|| {
                let tally = self.survey.failure_domain(fact);
                let domain = self.survey.failure_domain_name(fact)?.to_owned();
                Some(Hold::Brake { domain, silent: count(tally.silent), nodes: count(tally.nodes) })
            });
        }
        let moving = self.moving.get(wave).copied().unwrap_or(0);
        let healthy = self.survey.waves.get(wave).map_or(0, |wave| wave.healthy);
        if self.plan.plan().strategy.ramp && moving > healthy {
            return held(&|| Some(Hold::Ramp { in_flight: count(moving), allowed: count(healthy + 1) }));
        }
        if !fact.already_counted {
            let full = |slots: Option<&Slots>| slots.copied().filter(|slots| slots.used >= slots.max);
            if let Some(Slots { used, max }) = full(self.roles.get(fact.role)) {
                return held(&|| {
                    Some(Hold::RoleBudget { role: role()?, unavailable: count(used), allowed: count(max) })
                });
            }
            if let Some(Slots { used, max }) = full(fact.budget_label.and_then(|domain| self.domains.get(domain))) {
                let domain = || self.survey.domain_name(fact).map(str::to_owned);
                let hold = |domain| Hold::DomainBudget { domain, unavailable: count(used), allowed: count(max) };
                return held(&|| domain().map(hold));
            }
        }
        if granted < max_grants(self.input.max_ops) { Ok(()) } else { Err(None) }
    }

    /// The wave that must pass before the node's role may move. The plan orders the roles already; this does not rely on it.
    fn role_before(&self, fact: &NodeFacts) -> Option<&PlannedWave> {
        let waves_before = self.plan.role(self.survey.role(fact)?)?.waves_before;
        if waves_before <= self.passed { None } else { self.plan.plan().waves.get(waves_before - 1) }
    }

    fn grant(&mut self, fact: &NodeFacts) -> Option<Grant> {
        let name = self.survey.name(fact)?;
        let node = self.input.fleet.get(name)?;
        let record_at = node.record_at?;
        let cost = usize::from(!fact.already_counted);
        if let Some(slots) = self.roles.get_mut(fact.role) {
            slots.used += cost;
        }
        if let Some(slots) = fact.budget_label.and_then(|domain| self.domains.get_mut(domain)) {
            slots.used += cost;
        }
        if let Some(moving) = fact.wave.and_then(|wave| self.moving.get_mut(wave)) {
            *moving += 1;
        }
        let plan = self.plan.plan();
        let desired = DesiredRecord {
            version: plan.to.clone(),
            rollout: self.record.id,
            granted: self.input.now,
            expires: Some(later(self.input.now, plan.strategy.deadlines.node.saturating_add(node.call_allowance()))),
            allow_older: plan.allow_older,
            confirm_within: plan.strategy.confirm_within,
            kept: None,
        };
        Some(Grant { node: name.clone(), desired, record_at })
    }

    fn is_paused(&self, fact: &NodeFacts) -> bool {
        let (pauses, survey) = (self.survey.pauses(), self.survey);
        // Usually there are none, and no name is looked up.
        let is_concerned = |name| survey.role(fact).is_some_and(|role| pauses.concern(name, role));
        !pauses.is_empty() && survey.name(fact).is_some_and(is_concerned)
    }

    /// True if operators hold all remaining nodes of the started waves: they are paused or cordoned.
    pub(crate) fn only_held(&self) -> bool {
        if self.survey.pauses().is_empty() && !self.survey.any_cordoned {
            return false;
        }
        let is_held = |fact: &NodeFacts| fact.is_cordoned || self.is_paused(fact);
        let mut undone = self.survey.in_order(self.plan, self.record.waves.len()).filter(|f| !f.health.is_done());
        undone.all(|fact| fact.health == Health::Waiting && is_held(fact))
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
