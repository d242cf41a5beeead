//! Surveys the fleet for a step: the facts of each node, and their totals.
//!
//! A survey is kept from step to step. An update evaluates the nodes that have changed, whose connection has changed, or whose
//! time has come, and sums the facts of all nodes up. It evaluates every node again when something has changed that any of
//! them depends on: the design, a pause, a command of an operator, or a wave that settled.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::changes::{ChangePosition, ChangedNodes};
use muster_core::fleet::{Fleet, Node};
use muster_core::names::{NodeName, Role, Version};
use muster_core::node::agent::CallInterval;
use muster_core::node::liveness::Link;
use muster_core::node::record::NodeRecord;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{DesiredRecord, FailureCutoff, FailureKind, OperatorDecisions, RolloutRecord};
use muster_core::rollout::strategy::PerLabel;
use muster_core::txn::{Generation, Revision};

use crate::decision::DecisionInput;
use crate::health::{Health, HealthRules, grant_in, is_moving_at_once, later, validated_at};
use crate::plan::domain_of;
use crate::preflight::is_unprovisioned;

use super::facts::{FailureDomainTally, NameIndex, NodeFacts, Pauses, Tally, WaveTally};
use super::{IndexedPlan, PlanPosition};

/// Grants that are committed, and that the view of this replica does not show yet, with their revisions.
pub(crate) type GrantsAhead = BTreeMap<NodeName, (DesiredRecord, Revision)>;

#[derive(Clone, Debug)]
pub(crate) struct Survey {
    basis: SurveyBasis,
    /// The time of the last evaluation.
    evaluated: Timestamp,
    /// Changes of nodes and connections up to here are evaluated.
    fleet_position: ChangePosition,
    link_position: ChangePosition,
    /// Nodes that were evaluated with a grant that the fleet does not show yet.
    granted_ahead: BTreeSet<NodeName>,
    /// The nodes of the design, sorted.
    names: Vec<NodeName>,
    /// The facts of each of them.
    pub facts: Vec<NodeFacts>,
    /// The place of each of them in the plan.
    positions: Vec<Option<PlanPosition>>,
    /// Facts that were replaced because a disconnected node was no longer waited for. That depends on other nodes, and is
    /// decided again in each step.
    expired: Vec<NodeFacts>,
    /// Indexes into `facts` of the nodes of the plan, in its order; none for nodes that have left.
    by_order: Vec<Option<usize>>,
    /// Nodes that joined after the plan was made.
    late: Vec<usize>,
    pub roles: NameIndex<Role, Tally>,
    pub domains: NameIndex<String, Tally>,
    pub failure_domains: NameIndex<String, FailureDomainTally>,
    pub waves: Vec<WaveTally>,
    pub any_cordoned: bool,
    /// Indexes of granted nodes that were paused and have missed their deadline.
    pub paused_past_deadline: Vec<usize>,
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

/// Everything but the node itself, its connection and the time that the facts of a node depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SurveyBasis {
    rollout: RolloutId,
    plan: String,
    /// Revision and number of the store's epoch.
    epoch: (Option<Revision>, u64),
    /// Grants of older rollouts are not valid.
    floor: RolloutId,
    base: Option<(Version, Generation)>,
    operator: OperatorDecisions,
    /// Waves that have passed, and those of all that have settled.
    passed: usize,
    settled: Vec<bool>,
    pauses: Pauses,
    disconnect_grace: SignedDuration,
}

impl SurveyBasis {
    fn new(record: &RolloutRecord, input: &DecisionInput<'_>) -> Self {
        let fleet = input.fleet;
        let mut settled: Vec<bool> = record.waves.iter().map(|wave| wave.settled.is_some()).collect();
        // A wave that has begun and is not settled is as one that has not begun.
        settled.truncate(settled.iter().rposition(|settled| *settled).map_or(0, |last| last + 1));
        Self {
            rollout: record.id,
            plan: record.plan.clone(),
            epoch: (fleet.epoch_at(), fleet.epoch()),
            floor: fleet.active_rollout_pointer().map(|(active, _)| active.floor).unwrap_or_default(),
            base: fleet.base().map(|base| (base.version, base.generation)),
            // No fact depends on the ids of commands.
            operator: OperatorDecisions { command_ids: Vec::new(), ..record.operator.clone() },
            passed: record.waves.iter().filter(|wave| wave.passed.is_some()).count(),
            settled,
            pauses: Pauses::in_effect(fleet, input.now),
            disconnect_grace: input.disconnect_grace,
        }
    }
}

/// Evaluates nodes on one basis, at one time.
struct NodeEvaluation<'a> {
    plan: &'a IndexedPlan,
    rules: HealthRules<'a>,
    input: &'a DecisionInput<'a>,
    ahead: &'a GrantsAhead,
    basis: SurveyBasis,
    per: Option<&'a PerLabel>,
}

/// A node of the design, and its place in the survey.
struct SurveyedNode<'a> {
    index: usize,
    name: &'a NodeName,
    node: &'a Node,
    design: &'a NodeRecord,
    position: Option<PlanPosition>,
    role: usize,
    budget_label: Option<usize>,
    failure_domain: usize,
}

impl<'a> NodeEvaluation<'a> {
    fn new(
        plan: &'a IndexedPlan,
        record: &'a RolloutRecord,
        input: &'a DecisionInput<'a>,
        ahead: &'a GrantsAhead,
    ) -> Self {
        let epoch = input.fleet.epoch();
        let rules = HealthRules {
            record,
            strategy: &plan.plan().strategy,
            epoch,
            epoch_began: epoch_start(epoch, input.now),
            now: input.now,
            disconnect_grace: input.disconnect_grace,
        };
        let per = plan.plan().strategy.max_unavailable.per.as_ref();
        Self { plan, rules, input, ahead, basis: SurveyBasis::new(record, input), per }
    }

    /// A node's desired version and its generation: its own, or that of the environment.
    fn desired<'d>(&'d self, own: Option<&'d (DesiredRecord, Revision)>) -> Option<(&'d Version, Generation)> {
        match own {
            Some((desired, at)) => {
                let kept = desired.kept.filter(|kept| kept.epoch == self.rules.epoch);
                Some((&desired.version, kept.unwrap_or(Generation { epoch: self.rules.epoch, number: at.0 })))
            }
            None => self.basis.base.as_ref().map(|(version, generation)| (version, *generation)),
        }
    }

    fn facts(&self, surveyed: &SurveyedNode<'_>) -> NodeFacts {
        let (Self { plan, rules, input, basis, .. }, SurveyedNode { name, design, .. }) = (self, surveyed);
        let node = surveyed.node;
        let desired = self.ahead.get(*name).or(node.desired.as_ref());
        let grant = grant_in(rules.record, desired);
        let own = desired.filter(|(desired, _)| desired.rollout >= basis.floor);
        let kept = if own.is_none() { input.fleet.kept(node) } else { None };
        let desired = match &kept {
            Some(kept) => Some((&kept.version, kept.generation)),
            None => self.desired(own),
        };
        let has_target = desired.is_some_and(|(version, _)| *version == rules.record.to);
        let (wave, prior_condition) = match surveyed.position {
            Some(PlanPosition::InWave { wave, prior_condition, .. }) => (Some(wave), prior_condition),
            Some(PlanPosition::Already) | None => {
                let is_left_alone = grant.is_none()
                    // Its own desired version is not from the rollout that is rolled back: it was skipped, or never moved.
                    && (has_target || own.is_some_and(|(own, _)| keeps_grant(rules.record, own)));
                let is_moved = !is_left_alone && !plan.plan().waves.is_empty();
                (is_moved.then(|| plan.wave_of_late(&design.role, basis.passed)), None)
            }
        };
        let link = (input.link)(name);
        let is_settled = wave.and_then(|wave| rules.record.waves.get(wave)).is_some_and(|wave| wave.settled.is_some());
        let health = rules.health(input, (name, node), grant, link, is_settled);
        // One that was paused and missed its deadline could not report: it is granted again after that.
        let is_paused_past_deadline = health.is_late() && basis.pauses.concern(name, &design.role);
        let health = if is_paused_past_deadline { Health::Waiting } else { health };
        let is_connected = link.is_live();
        let is_up = is_connected
            && match grant {
                Some(_) if health != Health::Skipped => matches!(health, Health::Healthy { .. }),
                Some(_) | None => rules.is_serving(node, desired),
            };
        let is_new = grant.is_none() && is_unprovisioned(node);
        let is_counted = !is_new && !rules.record.operator.released.contains(*name);
        let silent = link.silent_since();
        let is_to_be_observed =
            wave.is_some_and(|wave| wave >= basis.passed) && matches!(health, Health::Healthy { .. });
        let has_soaked = |validated| later(validated, rules.strategy.soak) <= input.now;
        let validated = grant.zip(node.state()).map(|((grant, _), (_, leaf))| leaf.since.max(grant.granted));
        NodeFacts {
            index: surveyed.index,
            record_at: node.record_at,
            wave,
            prior_condition,
            role: surveyed.role,
            budget_label: surveyed.budget_label,
            failure_domain: surveyed.failure_domain,
            silent,
            health,
            is_new,
            is_unavailable: !is_up && is_counted,
            already_counted: !is_up && is_counted && !is_moving_at_once(node, desired, own.is_some()),
            is_cordoned: node.cordon().is_some(),
            is_paused_past_deadline,
            grant_at: grant.map(|(_, at)| at),
            healthy_at: grant.filter(|_| is_to_be_observed).map(|(_, at)| validated_at(node, at)),
            call_allowance: if health.is_done() { SignedDuration::ZERO } else { node.call_allowance() },
            is_retried: false,
            is_observed: matches!(health, Health::Soaking { .. }) && validated.is_some_and(has_soaked),
            recheck: self.recheck(health, link, is_settled),
        }
    }

    /// The next time at which a node's health changes by itself.
    fn recheck(&self, health: Health, link: Link, is_settled: bool) -> Option<Timestamp> {
        // In a settled wave a short disconnection is tolerated.
        let tolerated =
            || link.silent_since().filter(|_| is_settled).map(|since| later(since, self.input.disconnect_grace));
        let of_health = match health {
            Health::Moving { deadline } => deadline,
            Health::Pending { deadline } => Some(deadline),
            Health::Soaking { until } => Some(tolerated().map_or(until, |end| end.min(until))),
            Health::Healthy { .. } => tolerated(),
            Health::Waiting | Health::Away { .. } | Health::Failed { .. } | Health::Skipped | Health::Unprovisioned => {
                None
            }
        };
        let of_link = match link {
            Link::BetweenCalls { until, .. } => Some(until),
            Link::Connected { .. } | Link::Silent { .. } => None,
        };
        of_health.into_iter().chain(of_link).min()
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

impl Survey {
    /// Evaluates every node.
    pub(crate) fn new(plan: &IndexedPlan, record: &RolloutRecord, input: &DecisionInput<'_>) -> Self {
        Self::with_ahead(plan, record, input, &GrantsAhead::new())
    }

    /// The same with grants that the fleet does not show yet.
    pub(crate) fn with_ahead(
        plan: &IndexedPlan,
        record: &RolloutRecord,
        input: &DecisionInput<'_>,
        ahead: &GrantsAhead,
    ) -> Self {
        // Read before the connections: one that changes meanwhile is evaluated again.
        let link_position = (input.link_changes)(None).position;
        let evaluation = NodeEvaluation::new(plan, record, input, ahead);
        let mut survey = Survey {
            basis: evaluation.basis.clone(),
            evaluated: input.now,
            fleet_position: input.fleet.changes().position(),
            link_position,
            granted_ahead: ahead.keys().cloned().collect(),
            names: Vec::with_capacity(plan.positions().len()),
            facts: Vec::with_capacity(plan.positions().len()),
            positions: Vec::with_capacity(plan.positions().len()),
            expired: Vec::new(),
            by_order: vec![None; plan.plan().node_count()],
            late: Vec::new(),
            roles: NameIndex::new(),
            domains: NameIndex::new(),
            failure_domains: NameIndex::new(),
            waves: vec![WaveTally::default(); plan.plan().waves.len()],
            any_cordoned: false,
            paused_past_deadline: Vec::new(),
            healthy: 0,
            reviewed: None,
            failures: 0,
            last_healthy: input.now,
            recheck: None,
            call_allowance: SignedDuration::ZERO,
        };
        // Both are sorted by name.
        let mut positions = plan.positions().iter().peekable();
        for (name, node, design) in input.fleet.designed() {
            while positions.next_if(|(planned, _)| planned < name).is_some() {}
            let position = positions.next_if(|(planned, _)| planned == name).map(|(_, position)| *position);
            survey.add(&evaluation, (name, node, design), position);
        }
        survey.sum_up(&evaluation);
        survey
    }

    /// Brings the survey up to date. It is then equal to a new one.
    pub(crate) fn update(
        &mut self,
        plan: &IndexedPlan,
        record: &RolloutRecord,
        input: &DecisionInput<'_>,
        ahead: &GrantsAhead,
    ) {
        let evaluation = NodeEvaluation::new(plan, record, input, ahead);
        match self.stale_nodes(&evaluation) {
            Some(stale) => {
                for index in stale {
                    self.evaluate(&evaluation, index);
                }
                self.evaluated = input.now;
                self.sum_up(&evaluation);
            }
            None => *self = Self::with_ahead(plan, record, input, ahead),
        }
    }

    /// The nodes that are to be evaluated again, and marks their changes as evaluated. None: all.
    fn stale_nodes(&mut self, evaluation: &NodeEvaluation<'_>) -> Option<BTreeSet<usize>> {
        let NodeEvaluation { input, basis, .. } = evaluation;
        // The clock may have been set back.
        if self.basis != *basis || input.now < self.evaluated {
            return None;
        }
        for facts in std::mem::take(&mut self.expired) {
            self.replace(facts);
        }
        let ChangedNodes { position: link_position, nodes: relinked } = (input.link_changes)(Some(&self.link_position));
        let relinked = relinked?;
        let mut stale = BTreeSet::new();
        for name in input.fleet.changes().since(&self.fleet_position)?.chain(&relinked) {
            let node = input.fleet.get(name).filter(|node| node.is_designed());
            match (self.facts_of(name), node) {
                (Some(facts), Some(node)) if facts.record_at == node.record_at => drop(stale.insert(facts.index)),
                // It is not in the design.
                (None, None) => {}
                // It has joined, has left, or has another record.
                (Some(_) | None, _) => return None,
            }
        }
        let granted: BTreeSet<NodeName> = evaluation.ahead.keys().cloned().collect();
        let other = granted.symmetric_difference(&self.granted_ahead);
        stale.extend(other.filter_map(|name| self.facts_of(name)).map(|facts| facts.index));
        self.granted_ahead = granted;
        let is_due = |facts: &&NodeFacts| facts.is_observed || facts.recheck.is_some_and(|at| at <= input.now);
        stale.extend(self.facts.iter().filter(is_due).map(|facts| facts.index));
        self.fleet_position = input.fleet.changes().position();
        self.link_position = link_position;
        Some(stale)
    }

    /// Evaluates a node of the survey again.
    fn evaluate(&mut self, evaluation: &NodeEvaluation<'_>, index: usize) {
        let (Some(name), Some(before), Some(position)) =
            (self.names.get(index), self.facts.get(index), self.positions.get(index))
        else {
            return;
        };
        let Some(node) = evaluation.input.fleet.get(name) else { return };
        let Some(design) = &node.record else { return };
        let NodeFacts { role, budget_label, failure_domain, .. } = *before;
        let position = *position;
        let surveyed = SurveyedNode { index, name, node, design, position, role, budget_label, failure_domain };
        let facts = evaluation.facts(&surveyed);
        // A node that was not in the plan joins a wave, or leaves it.
        if facts.wave.is_some() != before.wave.is_some() {
            let is_late = facts.wave.is_some();
            match self.late.binary_search(&index) {
                Err(place) if is_late => self.late.insert(place, index),
                Ok(place) if !is_late => drop(self.late.remove(place)),
                Ok(_) | Err(_) => {}
            }
        }
        self.replace(facts);
    }

    fn replace(&mut self, facts: NodeFacts) {
        if let Some(slot) = self.facts.get_mut(facts.index) {
            *slot = facts;
        }
    }

    fn add(
        &mut self,
        evaluation: &NodeEvaluation<'_>,
        (name, node, design): (&NodeName, &Node, &NodeRecord),
        position: Option<PlanPosition>,
    ) {
        let index = self.facts.len();
        let budget_label = domain_of(design, evaluation.per);
        let facts = evaluation.facts(&SurveyedNode {
            index,
            name,
            node,
            design,
            position,
            role: self.roles.number(design.role.as_str(), || design.role.clone()),
            budget_label: budget_label.map(|label| self.domains.number(label, || label.to_owned())),
            failure_domain: self.failure_domains.number(&design.failure_domain, || design.failure_domain.clone()),
        });
        match position {
            Some(PlanPosition::InWave { order, .. }) => {
                if let Some(slot) = self.by_order.get_mut(order) {
                    *slot = Some(index);
                }
            }
            Some(PlanPosition::Already) | None if facts.wave.is_some() => self.late.push(index),
            Some(PlanPosition::Already) | None => {}
        }
        self.names.push(name.clone());
        self.positions.push(position);
        self.facts.push(facts);
    }

    /// Sums the facts of all nodes up.
    fn sum_up(&mut self, evaluation: &NodeEvaluation<'_>) {
        let NodeEvaluation { rules, input, basis, .. } = evaluation;
        self.roles.clear_tallies();
        self.domains.clear_tallies();
        self.failure_domains.clear_tallies();
        self.waves.fill(WaveTally::default());
        self.any_cordoned = false;
        self.paused_past_deadline.clear();
        (self.healthy, self.failures) = (0, 0);
        self.reviewed = basis.operator.reviewed.filter(|cutoff| cutoff.before.epoch == rules.epoch);
        // A new store epoch restarts the progress deadline.
        self.last_healthy = rules.record.started.max(rules.epoch_began);
        (self.recheck, self.call_allowance) = (None, SignedDuration::ZERO);
        let facts = std::mem::take(&mut self.facts);
        facts.iter().for_each(|facts| self.count(facts));
        self.facts = facts;
        for tally in &mut self.waves {
            // The last revision arrived last.
            tally.last_observed = tally.healthy_at.and_then(|at| input.not_before(at, rules.strategy.soak));
        }
        self.expire_disconnected(rules);
        self.count_failures();
    }

    /// Counts a node for the budgets, the brake and its wave.
    fn count(&mut self, fact: &NodeFacts) {
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
        self.any_cordoned |= fact.is_cordoned;
        if fact.is_paused_past_deadline {
            self.paused_past_deadline.push(fact.index);
        }
        self.call_allowance = self.call_allowance.max(fact.call_allowance);
        if let Some(at) = fact.recheck {
            self.recheck_at(at);
        }
        let Some(tally) = fact.wave.and_then(|wave| self.waves.get_mut(wave)) else { return };
        tally.healthy_at = tally.healthy_at.max(fact.healthy_at);
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
                self.expired.push(*fact);
                fact.health = Health::Failed { how: FailureKind::Unreachable, since: until };
                let granted = fact.grant_at.unwrap_or_default();
                let is_named = || self.names.get(fact.index).is_some_and(|name| record.operator.retry.contains(name));
                fact.is_retried = is_named()
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

    pub(crate) fn pauses(&self) -> &Pauses {
        &self.basis.pauses
    }

    /// The name of a node.
    pub(crate) fn name(&self, fact: &NodeFacts) -> Option<&NodeName> {
        self.names.get(fact.index)
    }

    /// The role of a node.
    pub(crate) fn role(&self, fact: &NodeFacts) -> Option<&Role> {
        self.roles.all.get(fact.role).map(|(role, _)| role)
    }

    /// The names of nodes.
    pub(crate) fn names_of<'s>(&'s self, indexes: &'s [usize]) -> impl Iterator<Item = &'s NodeName> {
        indexes.iter().filter_map(|index| self.names.get(*index))
    }

    /// The first difference to another survey of the same fleet. The ends of soaks are estimates in a survey that observes
    /// them itself, and are compared when they have come.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        if self.names != other.names || self.late != other.late || self.by_order != other.by_order {
            return Some("other nodes".to_owned());
        }
        let comparable = |facts: &NodeFacts| {
            let mut health = facts.health;
            if let Health::Soaking { until: at } | Health::Moving { deadline: Some(at) } = &mut health {
                *at = Timestamp::UNIX_EPOCH;
            }
            NodeFacts { health, recheck: None, ..*facts }
        };
        for (kept, new) in self.facts.iter().zip(&other.facts) {
            if comparable(kept) != comparable(new) {
                return Some(format!("{:?}: {kept:?} instead of {new:?}", self.name(kept)));
            }
        }
        let totals = |survey: &Self| {
            let Self { waves, any_cordoned, healthy, failures, last_healthy, call_allowance, .. } = survey.clone();
            let tallies = (survey.roles.all.clone(), survey.domains.all.clone(), survey.failure_domains.all.clone());
            (tallies, waves, (any_cordoned, healthy, failures, last_healthy, call_allowance))
        };
        (totals(self) != totals(other)).then(|| format!("{:?} instead of {:?}", totals(self), totals(other)))
    }

    /// Failures that no operator has reviewed, including those of nodes that were unhealthy before.
    pub(crate) fn unreviewed_failures(&self) -> impl Iterator<Item = &NodeFacts> {
        self.facts.iter().filter(|fact| fact.wave.is_some() && fact.is_unreviewed_failure(self.reviewed))
    }

    /// True if all nodes run the target, none was skipped or failed, and at least one has validated it.
    pub(crate) fn is_complete(&self, record: &RolloutRecord, fleet: &Fleet) -> bool {
        let has_target = |fact: &NodeFacts| {
            let desired = self.name(fact).and_then(|name| fleet.desired_of(name));
            desired.is_some_and(|desired| desired.version == record.to)
        };
        let is_at_target = |fact: &NodeFacts| match fact.health {
            Health::Healthy { .. } | Health::Unprovisioned => true,
            Health::Waiting => fact.wave.is_none() && has_target(fact),
            Health::Moving { .. }
            | Health::Pending { .. }
            | Health::Soaking { .. }
            | Health::Away { .. }
            | Health::Failed { .. }
            | Health::Skipped => false,
        };
        let has_validated = |fact: &NodeFacts| match fact.health {
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
    pub(crate) fn failed(&self) -> impl Iterator<Item = &NodeFacts> {
        self.facts.iter().filter(|fact| fact.counts_as_failed(self.reviewed))
    }

    /// True if a node still waits for its retry: it exists, and has not validated meanwhile.
    pub(crate) fn awaits_retry(&self, name: &NodeName) -> bool {
        self.facts_of(name).is_some_and(|fact| fact.health == Health::Waiting || fact.is_retried)
    }

    /// The facts of a node.
    pub(crate) fn facts_of(&self, name: &NodeName) -> Option<&NodeFacts> {
        let found = self.names.binary_search(name).ok();
        found.and_then(|index| self.facts.get(index))
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
    pub(crate) fn in_order(&self, plan: &IndexedPlan, begun: usize) -> impl Iterator<Item = &NodeFacts> {
        let planned = (0..begun).flat_map(|wave| plan.orders_in(wave));
        let planned = planned.filter_map(|order| self.by_order.get(order).copied().flatten());
        let late = self.late.iter().copied();
        let facts = planned.chain(late).filter_map(|index| self.facts.get(index));
        facts.filter(move |fact| fact.wave.is_some_and(|wave| wave < begun))
    }

    /// The node at a position of the plan, unless it has left.
    pub(crate) fn at(&self, order: usize) -> Option<&NodeFacts> {
        self.facts.get(self.by_order.get(order).copied().flatten()?)
    }

    /// Nodes that joined after the plan was made.
    pub(crate) fn late(&self) -> impl Iterator<Item = &NodeFacts> {
        self.late.iter().filter_map(|index| self.facts.get(*index))
    }

    pub(crate) fn failure_domain(&self, fact: &NodeFacts) -> FailureDomainTally {
        self.failure_domains.all.get(fact.failure_domain).map(|(_, tally)| *tally).unwrap_or_default()
    }

    pub(crate) fn failure_domain_name(&self, fact: &NodeFacts) -> Option<&str> {
        self.failure_domains.all.get(fact.failure_domain).map(|(name, _)| name.as_str())
    }

    pub(crate) fn domain_name(&self, fact: &NodeFacts) -> Option<&str> {
        self.domains.all.get(fact.budget_label?).map(|(name, _)| name.as_str())
    }
}
