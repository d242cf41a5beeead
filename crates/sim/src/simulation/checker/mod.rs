//! The checker: sees every transaction, and what really runs on the machines, and says what must never happen and did.
//!
//! It knows the rules by itself, from the plan and the strategy as data: it asks the engine nothing, so that it catches an
//! engine that is wrong. Who is connected it believes if the store says so and it is so: a server alone may know more.
//! Decisions are judged on the view that they were made on, which the record of the rollout names (`seen`); that a pause
//! stops everything is judged by the order of revisions alone.

mod agents;
mod budget;
mod facts;
mod grants;
mod order;
mod reach;
mod status;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use muster_core::fleet::Fleet;
use muster_core::names::{EnvName, NodeName, ReplicaId, Version};
use muster_core::replica::ControllerName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::RolloutRecord;
use muster_core::txn::{Generation, Revision};
use muster_rollout::step::IndexedPlan;
use muster_store::WatchChange;

use self::agents::Agents;
use self::budget::NodesInMotion;
use self::facts::{NodeFacts, NodeHistory, ReportedState};
use self::grants::Grants;
use self::reach::Unreachable;
use self::status::RunEvidence;
use super::event::MachineNumber;
use super::event_queue::SimTime;
use super::fault_rates::MOST_SKEW;
use super::replica::apply_changes;
use super::store::Writer;

pub use self::trace::{TraceChecker, TraceRun, TraceWriter};

/// Messages take their time.
const TRAVEL: SimTime = SimTime::from_millis(500);

/// Up to so much, the times that other servers have written count as they are.
const CLOCKS_AGREE: SimTime = SimTime::from_secs(2);

/// The rules, by the names that the design gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A node is in one service state at most, and the index says what its record says.
    OneState,
    /// `running_version`, and `validated`, only of what was really applied and then validated.
    VersionTruth,
    /// Reports of a node are applied in their order.
    ReportOrder,
    /// A report that a server answers with success is in the store.
    ReportDurable,
    /// No controller writes that does not hold its key.
    OneHolder,
    /// Never more nodes unavailable than the budget allows, by what really runs.
    Budget,
    /// One grant for each node, and no run without one.
    SingleGrant,
    /// Never two appliers on one machine.
    SingleApply,
    /// No wave before the one before it has passed its gate and its soak, and no role before those that it comes after.
    GateOrder,
    /// A rollout that is stopped grants nothing.
    StopMeansStop,
    /// Too many failures stop a rollout; and it is rolled back once at most.
    Threshold,
    /// A request that is sent twice is done once.
    Idempotence,
    /// An agent never goes back to what it was told earlier.
    Monotone,
    /// An older release only where somebody has said so.
    Downgrade,
    /// Nothing is granted outside its windows.
    Window,
    /// A node that is paused, that nobody hears of, or that has left, is granted nothing.
    Pause,
    /// Where more than half of a failure domain has fallen silent, nothing is granted.
    Brake,
    /// Nothing is granted on a view that was old when it was decided.
    FreshView,
    /// A rollout ends, or says why it does not.
    Ends,
    /// Every view ends equal to the store.
    Converges,
    /// Another server takes over in time.
    Takeover,
    /// A node that waits is woken when it need not wait any longer.
    Wakes,
    /// Whatever does not move has a reason.
    Explained,
}

impl Rule {
    pub fn name(self) -> &'static str {
        match self {
            Rule::OneState => "I1, one state",
            Rule::VersionTruth => "I2, version truth",
            Rule::ReportOrder => "the order of reports",
            Rule::ReportDurable => "answered reports",
            Rule::OneHolder => "I9, one holder",
            Rule::Budget => "I3, the budget",
            Rule::SingleGrant => "I4, single grant",
            Rule::SingleApply => "I5, single apply",
            Rule::GateOrder => "I6, gate order",
            Rule::StopMeansStop => "I7, stop means stop",
            Rule::Threshold => "I8, the threshold",
            Rule::Idempotence => "I10, idempotence",
            Rule::Monotone => "I11, monotone observation",
            Rule::Downgrade => "I12, downgrade",
            Rule::Window => "I16, the window",
            Rule::Pause => "paused, silent or gone",
            Rule::Brake => "the brake",
            Rule::FreshView => "a fresh view",
            Rule::Ends => "L1, it ends",
            Rule::Converges => "L2, views converge",
            Rule::Takeover => "L3, takeover",
            Rule::Wakes => "L5, pending nodes wake",
            Rule::Explained => "L6, explained",
        }
    }
}

/// Something that must never happen, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule.name(), self.what)
    }
}

/// What a node has had more than its time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// To answer what it was granted.
    Answer,
    /// To wait for others.
    Others,
}

/// A server may be asked just before it looks again.
const LOOKS: SimTime = SimTime::from_secs(15);

/// One transaction, as the checker sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Committed<'a> {
    pub(crate) at: SimTime,
    pub(crate) revision: Revision,
    pub(crate) changes: &'a [WatchChange],
    pub(crate) writer: &'a Writer,
}

/// The plans, by the names of their blobs.
pub(crate) type Plans = BTreeMap<String, Arc<IndexedPlan>>;

#[derive(Clone, Debug)]
pub(crate) struct Checker {
    /// What is true now.
    fleet: Fleet,
    names: Vec<NodeName>,
    facts: NodeHistory,
    proofs: RunEvidence,
    agents: Agents,
    moved: NodesInMotion,
    grants: Grants,
    reach: Unreachable,
    /// What the checks of a gate have really said.
    passed_gates: BTreeSet<(RolloutId, usize)>,
    /// When the holder of the rollout controller went, if nobody has taken over since.
    orphaned: Option<(ReplicaId, SimTime)>,
    takeovers: Vec<SimTime>,
    /// When each revision was made.
    times: Vec<(SimTime, Revision)>,
    violations: Vec<Violation>,
    told: usize,
    /// By how much all soaks together may be too short, however far clocks are apart.
    slack: SimTime,
    /// How far two clocks may be apart: deadlines and windows go by what they say.
    apart: SimTime,
    /// It is told of everything at the moment at which it happens.
    is_inside: bool,
}

impl Checker {
    pub(crate) fn new(env: EnvName) -> Self {
        Self {
            fleet: Fleet::new(env),
            names: Vec::new(),
            facts: NodeHistory::default(),
            proofs: RunEvidence::default(),
            agents: Agents::default(),
            moved: NodesInMotion::default(),
            grants: Grants::default(),
            reach: Unreachable::default(),
            passed_gates: BTreeSet::new(),
            orphaned: None,
            takeovers: Vec::new(),
            times: Vec::new(),
            violations: Vec::new(),
            told: 0,
            slack: CLOCKS_AGREE + TRAVEL,
            // Each as wrong as can be, and one of them the other way.
            apart: 2 * MOST_SKEW.unsigned_abs() + TRAVEL,
            is_inside: true,
        }
    }

    pub(crate) fn clocks_differ_by(&mut self, most: SimTime) {
        self.apart = most + TRAVEL;
    }

    pub(crate) fn machine(&mut self, number: MachineNumber, name: &NodeName) {
        debug_assert_eq!(number, self.names.len());
        self.names.push(name.clone());
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    pub(crate) fn report(&mut self, rule: Rule, what: impl Into<String>) {
        self.violations.push(Violation { rule, what: what.into() });
    }

    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Those that were not told yet.
    pub(crate) fn unlogged(&mut self) -> Vec<Violation> {
        let news = self.violations[self.told..].to_vec();
        self.told = self.violations.len();
        news
    }

    pub(crate) fn gate_said(&mut self, id: RolloutId, wave: usize, passed: bool) {
        if passed {
            self.passed_gates.insert((id, wave));
        }
    }

    /// The node of a rollout that has had more than its time, and since when it does not answer, or waits for others. Who was
    /// granted something and is late for so long that no clock can be the reason must not be said to be on its way.
    pub(crate) fn overdue(&self, plan: &RolloutPlan, record: &RolloutRecord, now: SimTime) -> Vec<(NodeName, Overdue)> {
        let head = self.fleet.revision;
        let epoch = self.fleet.epoch();
        let over = |since: SimTime, deadline: jiff::SignedDuration| {
            let deadline = SimTime::try_from(deadline).unwrap_or_default();
            now.saturating_sub(since) > deadline + self.apart + LOOKS
        };
        let late = |(name, standing): (&NodeName, &NodeFacts)| {
            let grant = standing.granted_by(record.id, &record.to)?;
            let answered = standing.answered >= Generation { epoch, number: grant.revision.0 };
            let at_target = standing.version.as_ref() == Some(&record.to);
            let pending = answered && at_target && standing.shows == ReportedState::Pending;
            if !answered && over(grant.at, plan.strategy.deadlines.node) {
                return Some((name.clone(), Overdue::Answer));
            }
            let since = standing.since.max(grant.at);
            (pending && over(since, plan.strategy.deadlines.pending)).then(|| (name.clone(), Overdue::Others))
        };
        self.facts.designed(head).filter_map(late).collect()
    }

    /// What a node of the design should run, by the keys.
    pub(crate) fn told(&self, name: &NodeName) -> Option<Version> {
        let standing = self.facts.of(name, self.fleet.revision).filter(|standing| standing.designed)?;
        standing.told(&self.facts.base(self.fleet.revision)).map(|(version, _)| version)
    }

    /// How far the store was at a moment.
    pub(crate) fn revision_at(&self, at: SimTime) -> Revision {
        let after = self.times.partition_point(|(made, _)| *made <= at);
        after.checked_sub(1).and_then(|place| self.times.get(place)).map(|(_, revision)| *revision).unwrap_or_default()
    }

    pub(crate) fn committed(&mut self, seen: &Committed<'_>, plans: &Plans) {
        self.times.push((seen.at, seen.revision));
        self.check_writer(seen);
        // What the decision was made on, before it has its effect.
        let verdicts = self.check_rollouts(seen, plans);
        self.violations.extend(verdicts);
        let before = self.agents.base_of(&self.fleet);
        let effects = apply_changes(&mut self.fleet, seen.revision, seen.changes);
        self.agents.record_desired(seen, &self.fleet, before);
        let reported = status::reported(seen.changes);
        for node in &effects.nodes {
            self.check_status(node, reported.contains(node));
            self.facts.note(node, &self.fleet, seen.revision, seen.at);
        }
        if effects.desired || effects.rollouts {
            self.facts.record_base(&self.fleet, seen.revision);
        }
        if effects.desired {
            self.facts.record_pauses(&self.fleet, seen.revision);
        }
        if effects.servers {
            self.record_takeover(seen.at);
        }
    }
}

impl Checker {
    pub(super) fn check_writer(&mut self, seen: &Committed<'_>) {
        let Writer::Controller { name, replica } = seen.writer else { return };
        let holder = self.fleet.controllers().get(name).map(|(record, _)| record.replica.clone());
        if holder.as_ref() != Some(replica) {
            let what = format!("{replica} writes for {name} at revision {}, which {holder:?} holds", seen.revision);
            self.report(Rule::OneHolder, what);
        }
    }

    /// A server is gone, or can do nothing for a while.
    pub(crate) fn replica_lost(&mut self, id: &ReplicaId, now: SimTime) {
        let holder = self.fleet.controllers().get(&ControllerName::Rollout).map(|(record, _)| &record.replica);
        if holder == Some(id) {
            self.orphaned = Some((id.clone(), now));
        }
    }

    pub(super) fn record_takeover(&mut self, now: SimTime) {
        let Some((gone, since)) = &self.orphaned else { return };
        let holder = self.fleet.controllers().get(&ControllerName::Rollout).map(|(record, _)| &record.replica);
        if holder.is_some_and(|holder| holder != gone) {
            self.takeovers.push(now.saturating_sub(*since));
            self.orphaned = None;
        }
    }

    /// How long each takeover took.
    pub(crate) fn takeovers(&self) -> &[SimTime] {
        &self.takeovers
    }
}
