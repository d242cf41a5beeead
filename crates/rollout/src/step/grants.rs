//! Who may move now.

use muster_core::names::Role;
use muster_core::rollout::plan::PlannedWave;
use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::{DesiredRecord, RolloutRecord};

use crate::health::{Health, later};
use crate::sight::Sight;

use super::change::{Grant, MOST_GRANTS};
use super::{Fact, Indexed, Survey};

/// Receives the reason why a node may not move now.
pub(crate) type OnRefused<'f, 's> = &'f mut dyn FnMut(&Fact<'s>, Hold);

/// What is used up of the budgets, and what is left.
pub(crate) struct Ledger<'s> {
    plan: &'s Indexed,
    record: &'s RolloutRecord,
    survey: &'s Survey<'s>,
    sight: &'s Sight<'s>,
    roles: Vec<Slots>,
    domains: Vec<Slots>,
    /// How many are on their way in each wave.
    moving: Vec<usize>,
    /// How many waves have passed.
    passed: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slots {
    used: usize,
    max: usize,
}

impl<'s> Ledger<'s> {
    pub(crate) fn open(
        plan: &'s Indexed,
        record: &'s RolloutRecord,
        survey: &'s Survey<'s>,
        sight: &'s Sight<'s>,
    ) -> Self {
        let strategy = &plan.plan().strategy;
        let budgets = &plan.plan().budgets;
        let roles = survey.roles.all.iter().map(|(name, tally)| {
            // A role that has shrunk since the plan was made can lose fewer; one that has grown keeps to the plan.
            let now =
                Role::new(*name).map_or(1, |role| strategy.max_unavailable.of(&role).at_least_one_of(tally.nodes));
            let planned = budgets.roles.get(*name).and_then(|budget| usize::try_from(budget.max_unavailable).ok());
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
            sight,
            roles: roles.collect(),
            domains: domains.collect(),
            moving: survey.waves.iter().map(|wave| wave.moving).collect(),
            passed: record.waves.iter().filter(|wave| wave.passed.is_some()).count(),
        }
    }

    /// Selects the nodes that may move now, in the order of the plan. `refused` gets the reason for each other node; without
    /// it no reason is worked out.
    pub(crate) fn choose(&mut self, mut refused: Option<OnRefused<'_, 's>>) -> Vec<Grant> {
        let mut grants = Vec::new();
        let survey = self.survey;
        for fact in survey.in_order(self.plan, self.record.waves.len()) {
            if fact.health != Health::Waiting {
                continue;
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

    /// Whether a node may move now. The reason is worked out only if `explain` is set: a step looks at thousands of nodes and
    /// needs none. A node that comes with the next transaction has no reason.
    fn check(&self, fact: &Fact<'_>, granted: usize, explain: bool) -> Result<(), Option<Box<Hold>>> {
        let wave = fact.wave.unwrap_or_default();
        let node = || fact.name.clone();
        let held = |hold: &dyn Fn() -> Option<Hold>| Err(if explain { hold().map(Box::new) } else { None });
        if let Some(before) = self.role_before(fact) {
            return held(&|| Some(Hold::Turn { stage: before.stage, wave: before.wave }));
        }
        if let Some(since) = fact.silent {
            return held(&|| Some(Hold::Silent { node: node(), since }));
        }
        if self.is_paused(fact) {
            let pause = || self.sight.fleet.pause_of(fact.name, &fact.record.role, self.sight.now);
            return held(&|| pause().map(|paused| Hold::Paused { node: node(), paused }));
        }
        if self.survey.racks.all.get(fact.rack).is_some_and(|(_, rack)| rack.is_braked()) {
            return held(&|| {
                let rack = self.survey.rack(fact);
                let domain = fact.record.failure_domain.clone();
                Some(Hold::Brake { domain, silent: count(rack.silent), nodes: count(rack.nodes) })
            });
        }
        let moving = self.moving.get(wave).copied().unwrap_or(0);
        let healthy = self.survey.waves.get(wave).map_or(0, |wave| wave.healthy);
        if self.plan.plan().strategy.ramp && moving > healthy {
            return held(&|| Some(Hold::Ramp { in_flight: count(moving), allowed: count(healthy + 1) }));
        }
        if !fact.is_free {
            let full = |slots: Option<&Slots>| slots.copied().filter(|slots| slots.used >= slots.max);
            if let Some(Slots { used, max }) = full(self.roles.get(fact.role)) {
                let role = || fact.record.role.clone();
                return held(&|| {
                    Some(Hold::RoleBudget { role: role(), unavailable: count(used), allowed: count(max) })
                });
            }
            if let Some(Slots { used, max }) = full(fact.domain.and_then(|domain| self.domains.get(domain))) {
                let domain = || self.survey.domain_name(fact).map(str::to_owned);
                let hold = |domain| Hold::DomainBudget { domain, unavailable: count(used), allowed: count(max) };
                return held(&|| domain().map(hold));
            }
        }
        if granted < MOST_GRANTS { Ok(()) } else { Err(None) }
    }

    /// The wave that must pass before the node's role may move. The plan orders the roles already; this does not rely on it.
    fn role_before(&self, fact: &Fact<'_>) -> Option<&PlannedWave> {
        let opens = self.plan.role(&fact.record.role)?.opens;
        if opens <= self.passed { None } else { self.plan.plan().waves.get(opens - 1) }
    }

    fn grant(&mut self, fact: &Fact<'_>) -> Option<Grant> {
        let record_at = fact.node.record_at?;
        let cost = usize::from(!fact.is_free);
        if let Some(slots) = self.roles.get_mut(fact.role) {
            slots.used += cost;
        }
        if let Some(slots) = fact.domain.and_then(|domain| self.domains.get_mut(domain)) {
            slots.used += cost;
        }
        if let Some(moving) = fact.wave.and_then(|wave| self.moving.get_mut(wave)) {
            *moving += 1;
        }
        let plan = self.plan.plan();
        let desired = DesiredRecord {
            version: plan.to.clone(),
            rollout: self.record.id,
            granted: self.sight.now,
            expires: Some(later(self.sight.now, plan.strategy.deadlines.node)),
            allow_older: plan.allow_older,
            confirm_within: plan.strategy.confirm_within,
            kept: None,
        };
        Some(Grant { node: fact.name.clone(), desired, record_at })
    }

    fn is_paused(&self, fact: &Fact<'_>) -> bool {
        self.survey.pauses.concern(fact.name, &fact.record.role)
    }

    /// Whether all that is left to do in the waves that have begun is paused by somebody.
    pub(crate) fn only_paused(&self) -> bool {
        if self.survey.pauses.is_empty() {
            return false;
        }
        let mut undone = self.survey.in_order(self.plan, self.record.waves.len()).filter(|f| !f.health.is_done());
        undone.all(|fact| fact.health == Health::Waiting && self.is_paused(fact))
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
