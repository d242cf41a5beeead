//! One look at the whole fleet, through the eyes of a rollout.

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::{Fleet, Node};
use muster_core::names::{NodeName, Version};
use muster_core::node::liveness::Link;
use muster_core::node::record::NodeRecord;
use muster_core::rollout::record::{DesiredRecord, FailureCutoff, FailureKind, RolloutRecord};
use muster_core::rollout::strategy::PerLabel;
use muster_core::txn::Generation;

use crate::budget::domain_of;
use crate::health::{Health, Measure, grant_of, is_on_its_way, later, proved_at};
use crate::sight::Sight;
use crate::unwell::is_still_being_made;

use super::fact::{Fact, RackTally, Tally, WaveTally};
use super::numbered::Numbered;
use super::pauses::Pauses;
use super::{Indexed, Place};

pub(crate) struct Survey<'a> {
    /// The nodes of the design, by name.
    pub facts: Vec<Fact<'a>>,
    /// Where in `facts` the nodes of the plan are, in its order; none for those that have left.
    pub by_order: Vec<Option<usize>>,
    /// Those that joined after the plan was made.
    pub late: Vec<usize>,
    pub roles: Numbered<'a, Tally>,
    pub domains: Numbered<'a, Tally>,
    pub racks: Numbered<'a, RackTally>,
    pub waves: Vec<WaveTally>,
    pub pauses: Pauses<'a>,
    /// Nodes that were granted something, were paused then, and have not answered in time.
    pub kept_from_answering: Vec<&'a NodeName>,
    pub healthy: u32,
    pub forgiven: Option<FailureCutoff>,
    /// Those that count against the limits, in all.
    pub failures: usize,
    /// When a node last became healthy.
    pub last_healthy: Timestamp,
    /// When a node will be seen otherwise though nothing happens.
    pub recheck: Option<Timestamp>,
}

/// What is the same for all nodes.
struct Ground<'a> {
    measure: Measure<'a>,
    floor: muster_core::rollout::RolloutId,
    base: Option<(Version, Generation)>,
    passed: usize,
    per: Option<&'a PerLabel>,
}

/// Whether a rollout that goes back leaves a node alone that was granted this.
pub(crate) fn stays(record: &RolloutRecord, granted: &DesiredRecord) -> bool {
    record.rolls_back.is_some_and(|back_from| granted.rollout != back_from || granted.kept.is_some())
}

/// An epoch is called by the second in which it began.
pub(super) fn began(epoch: u64, now: Timestamp) -> Timestamp {
    let second = i64::try_from(epoch).ok().and_then(|second| Timestamp::from_second(second).ok());
    second.unwrap_or(Timestamp::UNIX_EPOCH).min(now)
}

impl<'a> Survey<'a> {
    pub(crate) fn take(plan: &'a Indexed, record: &'a RolloutRecord, sight: &Sight<'a>) -> Self {
        let fleet = sight.fleet;
        let ground = Ground {
            measure: Measure {
                record,
                strategy: &plan.plan().strategy,
                epoch: fleet.epoch(),
                epoch_began: began(fleet.epoch(), sight.now),
                now: sight.now,
                patience: sight.patience,
            },
            floor: fleet.active_rollout().map(|(active, _)| active.floor).unwrap_or_default(),
            base: fleet.base().map(|base| (base.version, base.generation)),
            passed: record.waves.iter().filter(|wave| wave.passed.is_some()).count(),
            per: plan.plan().strategy.max_unavailable.per.as_ref(),
        };
        let mut survey = Survey {
            facts: Vec::with_capacity(plan.places().len()),
            by_order: vec![None; plan.plan().node_count()],
            late: Vec::new(),
            roles: Numbered::new(),
            domains: Numbered::new(),
            racks: Numbered::new(),
            waves: vec![WaveTally::default(); plan.plan().waves.len()],
            pauses: Pauses::of(fleet, sight.now),
            kept_from_answering: Vec::new(),
            healthy: 0,
            forgiven: record.forgiven.filter(|forgiven| forgiven.before.epoch == fleet.epoch()),
            failures: 0,
            // In a new life of the store everybody begins anew.
            last_healthy: record.started.max(began(fleet.epoch(), sight.now)),
            recheck: None,
        };
        // Both are sorted by name: they are gone through side by side.
        let mut places = plan.places().iter().peekable();
        for (name, node, design) in fleet.designed() {
            while places.next_if(|(planned, _)| planned < name).is_some() {}
            let place = places.next_if(|(planned, _)| planned == name).map(|(_, place)| *place);
            survey.see(plan, &ground, sight, name, node, design, place);
        }
        survey.give_up_on_silent(&ground.measure);
        survey.count_failures();
        survey
    }

    #[expect(clippy::too_many_arguments, reason = "the body of one loop, given a name")]
    fn see(
        &mut self,
        plan: &Indexed,
        ground: &Ground<'a>,
        sight: &Sight<'a>,
        name: &'a NodeName,
        node: &'a Node,
        design: &'a NodeRecord,
        place: Option<Place>,
    ) {
        let Ground { measure, .. } = ground;
        let record = measure.record;
        let link = (sight.link)(name);
        let silent = match link {
            Link::Connected { .. } => None,
            Link::Silent { since } => Some(since),
        };
        let grant = grant_of(record, node);
        let own = node.desired.as_ref().filter(|(desired, _)| desired.rollout >= ground.floor);
        let told = match own {
            Some((desired, at)) => {
                let kept = desired.kept.filter(|kept| kept.epoch == measure.epoch);
                Some((&desired.version, kept.unwrap_or(Generation { epoch: measure.epoch, number: at.0 })))
            }
            None => ground.base.as_ref().map(|(version, generation)| (version, *generation)),
        };
        let is_told = told.is_some_and(|(version, _)| *version == record.to);
        let (wave, order, excused) = match place {
            Some(Place::InWave { wave, order, excused }) => (Some(wave), Some(order), excused),
            Some(Place::Already) | None if is_told && grant.is_none() => (None, None, false),
            Some(Place::Already) | None if plan.plan().waves.is_empty() => (None, None, false),
            // Who has a word of its own that is not of what is taken back was set aside, or never went.
            Some(Place::Already) | None if grant.is_none() && own.is_some_and(|(own, _)| stays(record, own)) => {
                (None, None, false)
            }
            Some(Place::Already) | None => (Some(plan.wave_of_late(&design.role, ground.passed)), None, false),
        };
        let is_settled = wave.and_then(|wave| record.waves.get(wave)).is_some_and(|wave| wave.settled.is_some());
        let health = match measure.health(sight, name, node, link, is_settled) {
            // It could not answer: it is granted once more when it may run again.
            late if late.is_late() && self.pauses.concern(name, &design.role) => {
                self.kept_from_answering.push(name);
                Health::Waiting
            }
            health => health,
        };
        let is_heard_of = matches!(link, Link::Connected { .. });
        let is_up = is_heard_of
            && match grant {
                Some(_) if health != Health::Skipped => matches!(health, Health::Healthy { .. }),
                Some(_) | None => measure.is_serving(node, told),
            };
        let is_new = grant.is_none() && is_still_being_made(node);
        let is_released = record.released.contains(name);
        let is_counted = !is_new && !is_released;
        let on_its_way = is_on_its_way(node, told, own.is_some());
        let fact = Fact {
            name,
            node,
            record: design,
            wave,
            excused,
            role: self.roles.number(design.role.as_str()),
            domain: domain_of(design, ground.per).map(|domain| self.domains.number(domain)),
            rack: self.racks.number(&design.failure_domain),
            silent,
            health,
            is_new,
            is_unavailable: !is_up && is_counted,
            is_free: !is_up && is_counted && !on_its_way,
            grant_at: grant.map(|(_, at)| at),
            is_asked_again: false,
        };
        self.count(&fact);
        if wave.is_some_and(|wave| wave >= ground.passed) {
            self.note_seen(&fact, sight, measure.strategy.soak);
        }
        self.watch(&fact, sight);
        let index = self.facts.len();
        match order {
            Some(order) => {
                if let Some(slot) = self.by_order.get_mut(order) {
                    *slot = Some(index);
                }
            }
            None if wave.is_some() => self.late.push(index),
            None => {}
        }
        self.facts.push(fact);
    }

    /// Counts it for the budgets and for the brake.
    fn count(&mut self, fact: &Fact<'_>) {
        if !matches!(fact.health, Health::NotThere | Health::Skipped)
            && let Some(rack) = self.racks.at(fact.rack)
        {
            rack.nodes += 1;
            rack.silent += usize::from(fact.silent.is_some());
        }
        let (made, unavailable) = (usize::from(!fact.is_new), usize::from(fact.is_unavailable));
        if let Some(role) = self.roles.at(fact.role) {
            role.nodes += made;
            role.unavailable += unavailable;
        }
        if let Some(domain) = fact.domain.and_then(|domain| self.domains.at(domain)) {
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
            Health::Failed { .. } | Health::Skipped | Health::NotThere => {}
        }
    }

    /// Notes since when a healthy node of a wave is so in the eyes of whoever decides.
    fn note_seen(&mut self, fact: &Fact<'_>, sight: &Sight<'_>, soak: SignedDuration) {
        let (Health::Healthy { .. }, Some(granted)) = (fact.health, fact.grant_at) else { return };
        if let Some(tally) = fact.wave.and_then(|wave| self.waves.get_mut(wave)) {
            tally.last_seen = tally.last_seen.max(sight.not_before(proved_at(fact.node, granted), soak));
        }
    }

    /// Notes when the node will be seen otherwise though nothing happens.
    fn watch(&mut self, fact: &Fact<'_>, sight: &Sight<'_>) {
        let at = match fact.health {
            Health::Moving { deadline } => deadline,
            Health::Pending { deadline } => Some(deadline),
            Health::Soaking { until } => Some(until),
            // Its wave is whole, and its agent is away for a moment, or for longer.
            Health::Healthy { .. } => fact.silent.map(|since| later(since, sight.patience)),
            Health::Waiting | Health::Away { .. } | Health::Failed { .. } | Health::Skipped | Health::NotThere => None,
        };
        if let Some(at) = at {
            self.look_again(at);
        }
    }

    fn look_again(&mut self, at: Timestamp) {
        self.recheck = Some(self.recheck.map_or(at, |before| before.min(at)));
    }

    /// Once everybody else of a wave is done, those whose agents are away are waited for no longer than their time.
    fn give_up_on_silent(&mut self, measure: &Measure<'_>) {
        let Measure { record, strategy, epoch, now, .. } = *measure;
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
                fact.is_asked_again = record.retry.contains(fact.name)
                    || record.retry_before.is_some_and(|before| before.covers(epoch, granted, until));
                tally.undone -= 1;
            } else {
                recheck = Some(recheck.map_or(until, |before: Timestamp| before.min(until)));
            }
        }
        if let Some(at) = recheck {
            self.look_again(at);
        }
    }

    fn count_failures(&mut self) {
        let forgiven = self.forgiven;
        for fact in self.facts.iter().filter(|fact| fact.counts_as_failed(forgiven)) {
            self.failures += 1;
            if let Some(tally) = fact.wave.and_then(|wave| self.waves.get_mut(wave)) {
                tally.failures += 1;
            }
        }
    }

    /// Those that have failed and that nobody has looked at, also those that were not well before.
    pub(crate) fn unseen(&self) -> impl Iterator<Item = &Fact<'a>> {
        self.facts.iter().filter(|fact| fact.wave.is_some() && fact.is_unseen_failure(self.forgiven))
    }

    /// Whether everybody is at the target, nobody was set aside or has failed, and somebody has proved it.
    pub(crate) fn is_whole(&self, record: &RolloutRecord, fleet: &Fleet) -> bool {
        let is_told = |fact: &Fact<'_>| fleet.desired_of(fact.name).is_some_and(|told| told.version == record.to);
        let is_there = |fact: &Fact<'_>| match fact.health {
            Health::Healthy { .. } | Health::NotThere => true,
            Health::Waiting => fact.wave.is_none() && is_told(fact),
            Health::Moving { .. }
            | Health::Pending { .. }
            | Health::Soaking { .. }
            | Health::Away { .. }
            | Health::Failed { .. }
            | Health::Skipped => false,
        };
        let has_proved = |fact: &Fact<'_>| match fact.health {
            Health::Healthy { .. } => true,
            Health::Waiting => !fact.is_unavailable && is_told(fact),
            Health::Moving { .. }
            | Health::Pending { .. }
            | Health::Soaking { .. }
            | Health::Away { .. }
            | Health::Failed { .. }
            | Health::Skipped
            | Health::NotThere => false,
        };
        record.skipped.is_empty() && self.facts.iter().all(is_there) && self.facts.iter().any(has_proved)
    }

    /// Those that count against the limits, by name.
    pub(crate) fn failed(&self) -> impl Iterator<Item = &Fact<'a>> {
        self.facts.iter().filter(|fact| fact.counts_as_failed(self.forgiven))
    }

    /// Whether a node that is to be granted once more still is: it is there, and has not proved itself meanwhile.
    pub(crate) fn is_to_be_retried(&self, name: &NodeName) -> bool {
        self.of(name).is_some_and(|fact| fact.health == Health::Waiting || fact.is_asked_again)
    }

    /// What is known of a node of the design.
    pub(crate) fn of(&self, name: &NodeName) -> Option<&Fact<'a>> {
        let found = self.facts.binary_search_by(|fact| fact.name.cmp(name)).ok();
        found.and_then(|at| self.facts.get(at))
    }

    /// Whether a wave waits for no node.
    pub(crate) fn is_done(&self, wave: usize) -> bool {
        self.waves.get(wave).is_none_or(|tally| tally.undone == 0)
    }

    /// When a node of a wave last became healthy.
    pub(crate) fn last_healthy_in(&self, wave: usize) -> Option<Timestamp> {
        self.waves.get(wave)?.last_healthy
    }

    /// The same in the eyes of whoever decides, who may have learnt of it much later. None: the times in the store count.
    pub(crate) fn last_seen_in(&self, wave: usize) -> Option<Timestamp> {
        self.waves.get(wave)?.last_seen
    }

    pub(crate) fn is_all_done(&self) -> bool {
        self.waves.iter().all(|tally| tally.undone == 0)
    }

    /// The nodes of the waves that have begun, in the order in which they are granted; those that joined later come last.
    pub(crate) fn in_order(&self, plan: &Indexed, begun: usize) -> impl Iterator<Item = &Fact<'a>> {
        let planned = (0..begun).flat_map(|wave| plan.orders_in(wave));
        let planned = planned.filter_map(|order| self.by_order.get(order).copied().flatten());
        let late = self.late.iter().copied();
        let facts = planned.chain(late).filter_map(|index| self.facts.get(index));
        facts.filter(move |fact| fact.wave.is_some_and(|wave| wave < begun))
    }

    /// The node at a place in the order of the plan, unless it has left.
    pub(crate) fn at(&self, order: usize) -> Option<&Fact<'a>> {
        self.facts.get(self.by_order.get(order).copied().flatten()?)
    }

    /// Those that joined after the plan was made.
    pub(crate) fn late(&self) -> impl Iterator<Item = &Fact<'a>> {
        self.late.iter().filter_map(|index| self.facts.get(*index))
    }

    pub(crate) fn rack(&self, fact: &Fact<'_>) -> RackTally {
        self.racks.all.get(fact.rack).map(|(_, rack)| *rack).unwrap_or_default()
    }

    pub(crate) fn domain_name(&self, fact: &Fact<'_>) -> Option<&'a str> {
        self.domains.all.get(fact.domain?).map(|(name, _)| *name)
    }
}
