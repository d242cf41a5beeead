//! Who may move now.

use jiff::Timestamp;
use muster_core::names::Role;
use muster_core::rollout::record::{DesiredRecord, RolloutRecord};

use crate::health::{Health, later};
use crate::sight::Sight;

use super::change::{Grant, MOST_GRANTS};
use super::{Fact, Indexed, Survey};

/// Why a node of a wave that has begun is not granted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// A role that its own comes after has not been moved.
    RoleBefore {
        stage: u32,
        wave: u32,
    },
    Paused,
    Silent {
        since: Timestamp,
    },
    Brake,
    Ramp {
        in_flight: usize,
        allowed: usize,
    },
    BudgetOfRole,
    BudgetOfDomain,
    /// It comes with the next transaction, at once.
    Next,
}

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
pub(crate) struct Slots {
    pub used: usize,
    pub max: usize,
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

    /// Chooses the nodes that may move now, in the order of the plan, and says why of the others.
    pub(crate) fn choose(&mut self, refused: &mut dyn FnMut(&Fact<'s>, Held)) -> Vec<Grant> {
        let mut grants = Vec::new();
        let survey = self.survey;
        for fact in survey.in_order(self.plan, self.record.waves.len()) {
            if fact.health != Health::Waiting {
                continue;
            }
            match self.held(fact, grants.len()) {
                Some(held) => refused(fact, held),
                None => grants.extend(self.grant(fact)),
            }
        }
        grants
    }

    fn held(&self, fact: &Fact<'_>, granted: usize) -> Option<Held> {
        let wave = fact.wave.unwrap_or_default();
        if let Some(held) = self.role_before(fact) {
            return Some(held);
        }
        if let Some(since) = fact.silent {
            return Some(Held::Silent { since });
        }
        if self.is_paused(fact) {
            return Some(Held::Paused);
        }
        if self.survey.racks.all.get(fact.rack).is_some_and(|(_, rack)| rack.is_braked()) {
            return Some(Held::Brake);
        }
        let moving = self.moving.get(wave).copied().unwrap_or(0);
        let healthy = self.survey.waves.get(wave).map_or(0, |wave| wave.healthy);
        if self.plan.plan().strategy.ramp && moving > healthy {
            return Some(Held::Ramp { in_flight: moving, allowed: healthy + 1 });
        }
        if !fact.is_free {
            let is_full = |slots: Option<&Slots>| slots.is_some_and(|slots| slots.used >= slots.max);
            if is_full(self.roles.get(fact.role)) {
                return Some(Held::BudgetOfRole);
            }
            if is_full(fact.domain.and_then(|domain| self.domains.get(domain))) {
                return Some(Held::BudgetOfDomain);
            }
        }
        (granted >= MOST_GRANTS).then_some(Held::Next)
    }

    /// The plan puts roles one after the other; that it does is not left to the plan alone.
    fn role_before(&self, fact: &Fact<'_>) -> Option<Held> {
        let opens = self.plan.role(&fact.record.role)?.opens;
        if opens <= self.passed {
            return None;
        }
        let before = self.plan.plan().waves.get(opens - 1)?;
        Some(Held::RoleBefore { stage: before.stage, wave: before.wave })
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

    pub(crate) fn of_role(&self, fact: &Fact<'_>) -> Option<Slots> {
        self.roles.get(fact.role).copied()
    }

    pub(crate) fn of_domain(&self, fact: &Fact<'_>) -> Option<Slots> {
        self.domains.get(fact.domain?).copied()
    }
}
