//! Surveys the fleet for a step: the facts of each node, and their totals.

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::{Fleet, Node};
use muster_core::names::{NodeName, Version};
use muster_core::node::agent::CallInterval;
use muster_core::node::liveness::Link;
use muster_core::node::record::NodeRecord;
use muster_core::rollout::record::{DesiredRecord, FailureCutoff, FailureKind, RolloutRecord};
use muster_core::rollout::strategy::PerLabel;
use muster_core::txn::{Generation, Revision};

use crate::decision::DecisionInput;
use crate::health::{Health, HealthRules, grant_of, is_moving_at_once, later, validated_at};
use crate::plan::domain_of;
use crate::preflight::is_unprovisioned;

use super::facts::{FailureDomainTally, NameIndex, NodeFacts, Pauses, Tally, WaveTally};
use super::{IndexedPlan, PlanPosition};

pub(crate) struct Survey<'a> {
    /// The nodes of the design, sorted by name.
    pub facts: Vec<NodeFacts<'a>>,
    /// Indexes into `facts` of the nodes of the plan, in its order; none for nodes that have left.
    pub by_order: Vec<Option<usize>>,
    /// Nodes that joined after the plan was made.
    pub late: Vec<usize>,
    pub roles: NameIndex<'a, Tally>,
    pub domains: NameIndex<'a, Tally>,
    pub failure_domains: NameIndex<'a, FailureDomainTally>,
    pub waves: Vec<WaveTally>,
    pub pauses: Pauses<'a>,
    pub any_cordoned: bool,
    /// Granted nodes that were paused and have missed their deadline.
    pub paused_past_deadline: Vec<&'a NodeName>,
    pub healthy: u32,
    pub reviewed: Option<FailureCutoff>,
    /// Failures that count against the limits.
    pub failures: usize,
    /// The time when a node last became healthy.
    pub last_healthy: Timestamp,
    /// The longest time that a node may need until its agent, which cron starts, calls.
    pub call_allowance: SignedDuration,
    /// The next time at which a node's health changes by itself.
    pub recheck: Option<Timestamp>,
}

/// Values that are the same for all nodes.
struct SurveyContext<'a> {
    rules: HealthRules<'a>,
    floor: muster_core::rollout::RolloutId,
    base: Option<(Version, Generation)>,
    passed: usize,
    per: Option<&'a PerLabel>,
}

impl SurveyContext<'_> {
    /// A node's desired version and its generation: its own, or that of the environment.
    fn desired<'d>(&'d self, own: Option<&'d (DesiredRecord, Revision)>) -> Option<(&'d Version, Generation)> {
        match own {
            Some((desired, at)) => {
                let kept = desired.kept.filter(|kept| kept.epoch == self.rules.epoch);
                Some((&desired.version, kept.unwrap_or(Generation { epoch: self.rules.epoch, number: at.0 })))
            }
            None => self.base.as_ref().map(|(version, generation)| (version, *generation)),
        }
    }
}

/// Interval and next call of a node whose agent cron starts, while it is not connected.
pub(crate) fn next_call(link: Link) -> Option<(CallInterval, Timestamp)> {
    match link {
        Link::BetweenCalls { every, due, .. } => Some((every, due)),
        Link::Connected { .. } | Link::Silent { .. } => None,
    }
}

/// True if a rollback leaves a node with this grant alone.
pub(crate) fn keeps_grant(record: &RolloutRecord, granted: &DesiredRecord) -> bool {
    record.rolls_back.is_some_and(|back_from| granted.rollout != back_from || granted.kept.is_some())
}

/// An epoch is named after the second in which it began.
pub(super) fn epoch_start(epoch: u64, now: Timestamp) -> Timestamp {
    let second = i64::try_from(epoch).ok().and_then(|second| Timestamp::from_second(second).ok());
    second.unwrap_or(Timestamp::UNIX_EPOCH).min(now)
}

impl<'a> Survey<'a> {
    pub(crate) fn new(plan: &'a IndexedPlan, record: &'a RolloutRecord, input: &DecisionInput<'a>) -> Self {
        let fleet = input.fleet;
        let context = SurveyContext {
            rules: HealthRules {
                record,
                strategy: &plan.plan().strategy,
                epoch: fleet.epoch(),
                epoch_began: epoch_start(fleet.epoch(), input.now),
                now: input.now,
                disconnect_grace: input.disconnect_grace,
            },
            floor: fleet.active_rollout_pointer().map(|(active, _)| active.floor).unwrap_or_default(),
            base: fleet.base().map(|base| (base.version, base.generation)),
            passed: record.waves.iter().filter(|wave| wave.passed.is_some()).count(),
            per: plan.plan().strategy.max_unavailable.per.as_ref(),
        };
        let mut survey = Survey {
            facts: Vec::with_capacity(plan.positions().len()),
            by_order: vec![None; plan.plan().node_count()],
            late: Vec::new(),
            roles: NameIndex::new(),
            domains: NameIndex::new(),
            failure_domains: NameIndex::new(),
            waves: vec![WaveTally::default(); plan.plan().waves.len()],
            pauses: Pauses::in_effect(fleet, input.now),
            any_cordoned: false,
            paused_past_deadline: Vec::new(),
            healthy: 0,
            reviewed: record.operator.reviewed.filter(|cutoff| cutoff.before.epoch == fleet.epoch()),
            failures: 0,
            // A new store epoch restarts the progress deadline.
            last_healthy: record.started.max(epoch_start(fleet.epoch(), input.now)),
            recheck: None,
            call_allowance: SignedDuration::ZERO,
        };
        // Both are sorted by name.
        let mut positions = plan.positions().iter().peekable();
        for (name, node, design) in fleet.designed() {
            while positions.next_if(|(planned, _)| planned < name).is_some() {}
            let position = positions.next_if(|(planned, _)| planned == name).map(|(_, position)| *position);
            survey.add(plan, &context, input, (name, node, design), position);
        }
        survey.expire_disconnected(&context.rules);
        survey.count_failures();
        survey
    }

    fn add(
        &mut self,
        plan: &IndexedPlan,
        context: &SurveyContext<'a>,
        input: &DecisionInput<'a>,
        (name, node, design): (&'a NodeName, &'a Node, &'a NodeRecord),
        position: Option<PlanPosition>,
    ) {
        let rules = &context.rules;
        let grant = grant_of(rules.record, node);
        let own = node.desired.as_ref().filter(|(desired, _)| desired.rollout >= context.floor);
        let kept = if own.is_none() { input.fleet.kept(node) } else { None };
        let desired = match &kept {
            Some(kept) => Some((&kept.version, kept.generation)),
            None => context.desired(own),
        };
        self.any_cordoned |= node.cordon().is_some();
        let has_target = desired.is_some_and(|(version, _)| *version == rules.record.to);
        let (wave, order, prior_condition) = match position {
            Some(PlanPosition::InWave { wave, order, prior_condition }) => (Some(wave), Some(order), prior_condition),
            Some(PlanPosition::Already) | None => {
                let is_left_alone = grant.is_none()
                    // Its own desired version is not from the rollout that is rolled back: it was skipped, or never moved.
                    && (has_target || own.is_some_and(|(own, _)| keeps_grant(rules.record, own)));
                let is_moved = !is_left_alone && !plan.plan().waves.is_empty();
                (is_moved.then(|| plan.wave_of_late(&design.role, context.passed)), None, None)
            }
        };
        let link = (input.link)(name);
        let health = self.health(rules, input, (name, node, design), link, wave);
        let is_connected = link.is_live();
        let is_up = is_connected
            && match grant {
                Some(_) if health != Health::Skipped => matches!(health, Health::Healthy { .. }),
                Some(_) | None => rules.is_serving(node, desired),
            };
        let is_new = grant.is_none() && is_unprovisioned(node);
        let is_counted = !is_new && !rules.record.operator.released.contains(name);
        let fact = NodeFacts {
            name,
            node,
            record: design,
            wave,
            prior_condition,
            role: self.roles.number(design.role.as_str()),
            budget_label: domain_of(design, context.per).map(|domain| self.domains.number(domain)),
            failure_domain: self.failure_domains.number(&design.failure_domain),
            silent: link.silent_since(),
            between_calls: next_call(link),
            health,
            is_new,
            is_unavailable: !is_up && is_counted,
            already_counted: !is_up && is_counted && !is_moving_at_once(node, desired, own.is_some()),
            grant_at: grant.map(|(_, at)| at),
            is_retried: false,
        };
        self.count(&fact);
        if wave.is_some_and(|wave| wave >= context.passed) {
            self.record_observed(&fact, input, rules.strategy.soak);
        }
        self.schedule_recheck(&fact, input);
        if !health.is_done() {
            self.call_allowance = self.call_allowance.max(node.call_allowance());
        }
        if let Link::BetweenCalls { until, .. } = link {
            self.recheck_at(until);
        }
        self.index(order, wave);
        self.facts.push(fact);
    }

    /// The health of a node. One that was paused and missed its deadline could not report: it is granted again after that.
    fn health(
        &mut self,
        rules: &HealthRules<'_>,
        input: &DecisionInput<'_>,
        (name, node, design): (&'a NodeName, &Node, &NodeRecord),
        link: Link,
        wave: Option<usize>,
    ) -> Health {
        let is_settled = wave.and_then(|wave| rules.record.waves.get(wave)).is_some_and(|wave| wave.settled.is_some());
        let health = rules.health(input, name, node, link, is_settled);
        if health.is_late() && self.pauses.concern(name, &design.role) {
            self.paused_past_deadline.push(name);
            return Health::Waiting;
        }
        health
    }

    /// Indexes the next entry of `facts`.
    fn index(&mut self, order: Option<usize>, wave: Option<usize>) {
        let index = self.facts.len();
        match order.map(|order| self.by_order.get_mut(order)) {
            Some(Some(slot)) => *slot = Some(index),
            Some(None) => {}
            None if wave.is_some() => self.late.push(index),
            None => {}
        }
    }

    /// Counts a node for the budgets, the brake and its wave.
    fn count(&mut self, fact: &NodeFacts<'_>) {
        if !matches!(fact.health, Health::Unprovisioned | Health::Skipped)
            && let Some(domain) = self.failure_domains.at(fact.failure_domain)
        {
            domain.nodes += 1;
            domain.silent += usize::from(fact.silent.is_some());
        }
        let (made, unavailable) = (usize::from(!fact.is_new), usize::from(fact.is_unavailable));
        if let Some(role) = self.roles.at(fact.role) {
            role.nodes += made;
            role.unavailable += unavailable;
        }
        if let Some(domain) = fact.budget_label.and_then(|domain| self.domains.at(domain)) {
            domain.nodes += made;
            domain.unavailable += unavailable;
        }
        let Some(tally) = fact.wave.and_then(|wave| self.waves.get_mut(wave)) else { return };
        match fact.health {
            Health::Waiting | Health::Away { .. } => {
                tally.undone += 1;
                tally.undone_present += usize::from(fact.silent.is_none());
            }
            Health::Moving { .. } | Health::Soaking { .. } => {
                tally.undone += 1;
                tally.undone_present += 1;
                tally.moving += 1;
            }
            Health::Pending { .. } => {
                tally.undone += 1;
                tally.undone_present += 1;
            }
            Health::Healthy { since } => {
                tally.healthy += 1;
                tally.last_healthy = tally.last_healthy.max(Some(since));
                self.healthy += 1;
                self.last_healthy = self.last_healthy.max(since);
            }
            Health::Failed { .. } | Health::Skipped | Health::Unprovisioned => {}
        }
    }

    /// Records since when this replica has observed a healthy node of a wave.
    fn record_observed(&mut self, fact: &NodeFacts<'_>, input: &DecisionInput<'_>, soak: SignedDuration) {
        let (Health::Healthy { .. }, Some(granted)) = (fact.health, fact.grant_at) else { return };
        if let Some(tally) = fact.wave.and_then(|wave| self.waves.get_mut(wave)) {
            tally.last_observed = tally.last_observed.max(input.not_before(validated_at(fact.node, granted), soak));
        }
    }

    /// Records when the node's health changes by itself.
    fn schedule_recheck(&mut self, fact: &NodeFacts<'_>, input: &DecisionInput<'_>) {
        let at = match fact.health {
            Health::Moving { deadline } => deadline,
            Health::Pending { deadline } => Some(deadline),
            Health::Soaking { until } => Some(until),
            // In a settled wave a short disconnection is tolerated.
            Health::Healthy { .. } => fact.silent.map(|since| later(since, input.disconnect_grace)),
            Health::Waiting | Health::Away { .. } | Health::Failed { .. } | Health::Skipped | Health::Unprovisioned => {
                None
            }
        };
        if let Some(at) = at {
            self.recheck_at(at);
        }
    }

    fn recheck_at(&mut self, at: Timestamp) {
        self.recheck = Some(self.recheck.map_or(at, |before| before.min(at)));
    }

    /// Once all other nodes of a wave are done, disconnected nodes fail after the pending deadline.
    fn expire_disconnected(&mut self, rules: &HealthRules<'_>) {
        let HealthRules { record, strategy, epoch, now, .. } = *rules;
        let begun = record.waves.len();
        let mut recheck = None;
        for fact in &mut self.facts {
            let (Some(wave), Some(since)) = (fact.wave.filter(|wave| *wave < begun), fact.silent) else { continue };
            if !matches!(fact.health, Health::Waiting | Health::Away { .. }) {
                continue;
            }
            let Some(tally) = self.waves.get_mut(wave).filter(|tally| tally.undone_present == 0) else { continue };
            let until = later(since, strategy.deadlines.pending);
            if now >= until {
                fact.health = Health::Failed { how: FailureKind::Unreachable, since: until };
                let granted = fact.grant_at.unwrap_or_default();
                fact.is_retried = record.operator.retry.contains(fact.name)
                    || record.operator.retry_before.is_some_and(|before| before.covers(epoch, granted, until));
                tally.undone -= 1;
            } else {
                recheck = Some(recheck.map_or(until, |before: Timestamp| before.min(until)));
            }
        }
        if let Some(at) = recheck {
            self.recheck_at(at);
        }
    }

    fn count_failures(&mut self) {
        let reviewed = self.reviewed;
        for fact in self.facts.iter().filter(|fact| fact.counts_as_failed(reviewed)) {
            self.failures += 1;
            if let Some(tally) = fact.wave.and_then(|wave| self.waves.get_mut(wave)) {
                tally.failures += 1;
            }
        }
    }

    /// Failures that no operator has reviewed, including those of nodes that were unhealthy before.
    pub(crate) fn unreviewed_failures(&self) -> impl Iterator<Item = &NodeFacts<'a>> {
        self.facts.iter().filter(|fact| fact.wave.is_some() && fact.is_unreviewed_failure(self.reviewed))
    }

    /// True if all nodes run the target, none was skipped or failed, and at least one has validated it.
    pub(crate) fn is_complete(&self, record: &RolloutRecord, fleet: &Fleet) -> bool {
        let has_target =
            |fact: &NodeFacts<'_>| fleet.desired_of(fact.name).is_some_and(|desired| desired.version == record.to);
        let is_at_target = |fact: &NodeFacts<'_>| match fact.health {
            Health::Healthy { .. } | Health::Unprovisioned => true,
            Health::Waiting => fact.wave.is_none() && has_target(fact),
            Health::Moving { .. }
            | Health::Pending { .. }
            | Health::Soaking { .. }
            | Health::Away { .. }
            | Health::Failed { .. }
            | Health::Skipped => false,
        };
        let has_validated = |fact: &NodeFacts<'_>| match fact.health {
            Health::Healthy { .. } => true,
            Health::Waiting => !fact.is_unavailable && has_target(fact),
            Health::Moving { .. }
            | Health::Pending { .. }
            | Health::Soaking { .. }
            | Health::Away { .. }
            | Health::Failed { .. }
            | Health::Skipped
            | Health::Unprovisioned => false,
        };
        record.operator.skipped.is_empty()
            && self.facts.iter().all(is_at_target)
            && self.facts.iter().any(has_validated)
    }

    /// Failures that count against the limits, sorted by node name.
    pub(crate) fn failed(&self) -> impl Iterator<Item = &NodeFacts<'a>> {
        self.facts.iter().filter(|fact| fact.counts_as_failed(self.reviewed))
    }

    /// True if a node still waits for its retry: it exists, and has not validated meanwhile.
    pub(crate) fn awaits_retry(&self, name: &NodeName) -> bool {
        self.facts_of(name).is_some_and(|fact| fact.health == Health::Waiting || fact.is_retried)
    }

    /// The facts of a node.
    pub(crate) fn facts_of(&self, name: &NodeName) -> Option<&NodeFacts<'a>> {
        let found = self.facts.binary_search_by(|fact| fact.name.cmp(name)).ok();
        found.and_then(|at| self.facts.get(at))
    }

    /// True if a wave waits for no node.
    pub(crate) fn is_done(&self, wave: usize) -> bool {
        self.waves.get(wave).is_none_or(|tally| tally.undone == 0)
    }

    /// The time when a node of a wave last became healthy.
    pub(crate) fn last_healthy_in(&self, wave: usize) -> Option<Timestamp> {
        self.waves.get(wave)?.last_healthy
    }

    /// The time when this replica observed that, if that is later. None: the times in the store count.
    pub(crate) fn last_observed_in(&self, wave: usize) -> Option<Timestamp> {
        self.waves.get(wave)?.last_observed
    }

    pub(crate) fn is_all_done(&self) -> bool {
        self.waves.iter().all(|tally| tally.undone == 0)
    }

    /// The nodes of the started waves in the order of their grants. Nodes that joined later come last.
    pub(crate) fn in_order(&self, plan: &IndexedPlan, begun: usize) -> impl Iterator<Item = &NodeFacts<'a>> {
        let planned = (0..begun).flat_map(|wave| plan.orders_in(wave));
        let planned = planned.filter_map(|order| self.by_order.get(order).copied().flatten());
        let late = self.late.iter().copied();
        let facts = planned.chain(late).filter_map(|index| self.facts.get(index));
        facts.filter(move |fact| fact.wave.is_some_and(|wave| wave < begun))
    }

    /// The node at a position of the plan, unless it has left.
    pub(crate) fn at(&self, order: usize) -> Option<&NodeFacts<'a>> {
        self.facts.get(self.by_order.get(order).copied().flatten()?)
    }

    /// Nodes that joined after the plan was made.
    pub(crate) fn late(&self) -> impl Iterator<Item = &NodeFacts<'a>> {
        self.late.iter().filter_map(|index| self.facts.get(*index))
    }

    pub(crate) fn failure_domain(&self, fact: &NodeFacts<'_>) -> FailureDomainTally {
        self.failure_domains.all.get(fact.failure_domain).map(|(_, tally)| *tally).unwrap_or_default()
    }

    pub(crate) fn domain_name(&self, fact: &NodeFacts<'_>) -> Option<&'a str> {
        self.domains.all.get(fact.budget_label?).map(|(name, _)| *name)
    }
}
