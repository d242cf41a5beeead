//! Checks every transaction, and what really runs on the machines, against the rules of the design.
//!
//! The checker implements the rules on its own, from the plan and the strategy as data. It never calls the engine, and finds
//! errors of the engine. A node counts as disconnected only if it is so in the store and really is, since a server alone may
//! know more. A decision is checked on the view that it was based on, which the rollout record names (`seen`). That a pause
//! stops everything is checked by the order of revisions.

mod agents;
mod budget;
mod facts;
mod grants;
mod order;
mod quiet;
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
use self::quiet::QuietRuns;
use self::status::RunEvidence;
use super::coverage::ReachedArms;
use super::event::{MachineNumber, SimTime};
use super::faults::MOST_SKEW;
use super::replica::apply_changes;
use super::store::Writer;
use grants::Unreachable;

pub(crate) use self::quiet::AgentLife;
pub use self::trace::{TraceChecker, TraceRun, TraceWriter};

/// The largest message latency.
const TRAVEL: SimTime = SimTime::from_millis(500);

/// Times in the store are trusted up to this difference.
const CLOCKS_AGREE: SimTime = SimTime::from_secs(2);

/// The rules, with the names of the design document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A node is in at most one service state, and the index matches its record.
    OneState,
    /// `running_version` and `validated` only for versions that were really applied and validated.
    VersionTruth,
    /// Reports of a node are applied in order.
    ReportOrder,
    /// A report that a server answers with success is in the store.
    ReportDurable,
    /// A controller writes only while it holds its lock.
    OneHolder,
    /// The budget is never exceeded, by what really runs.
    Budget,
    /// One grant per node, and no run without one.
    SingleGrant,
    /// At most one applier per machine.
    SingleApply,
    /// A wave starts after the gate and soak of the previous one, and a role after its dependencies.
    GateOrder,
    /// A stopped rollout grants nothing.
    StopMeansStop,
    /// Too many failures stop a rollout, and it is rolled back at most once.
    Threshold,
    /// A repeated request is carried out once.
    Idempotence,
    /// An agent never returns to an earlier generation.
    Monotone,
    /// An older release only with permission.
    Downgrade,
    /// Nothing is granted outside the windows.
    Window,
    /// A paused, cordoned, disconnected or removed node is not granted.
    Pause,
    /// Nothing is granted where more than half of a failure domain is disconnected.
    Brake,
    /// Nothing is granted on a stale view.
    FreshView,
    /// A rollout ends, or has a reason not to.
    Ends,
    /// Every view converges to the store.
    Converges,
    /// Another server takes over in time.
    Takeover,
    /// A pending node is woken when its needs are met.
    Wakes,
    /// Everything that does not move has a reason.
    Explained,
    /// A timed run without news causes no write.
    Quiet,
    /// The audit records the values that were stored before a write.
    AuditBefore,
}

impl Rule {
    pub fn name(self) -> &'static str {
        match self {
            Rule::OneState => "I1, one state",
            Rule::VersionTruth => "I2, version truth",
            Rule::ReportOrder => "report order",
            Rule::ReportDurable => "acknowledged reports",
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
            Rule::Pause => "paused, cordoned, disconnected or removed",
            Rule::Brake => "failure domain brake",
            Rule::FreshView => "fresh view",
            Rule::Ends => "L1, it ends",
            Rule::Converges => "L2, views converge",
            Rule::Takeover => "L3, takeover",
            Rule::Wakes => "L5, pending nodes wake",
            Rule::Explained => "L6, explained",
            Rule::Quiet => "quiet timed runs",
            Rule::AuditBefore => "values before a write",
        }
    }
}

/// A violation of a rule.
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

/// The deadline that a node has missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissedDeadline {
    /// To report its grant.
    Answer,
    /// To wait for other nodes.
    Others,
}

/// The longest time until a server reconciles.
const LOOKS: SimTime = SimTime::from_secs(15);

/// One transaction, with its author.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommittedTxn<'a> {
    pub(crate) at: SimTime,
    pub(crate) revision: Revision,
    pub(crate) changes: &'a [WatchChange],
    pub(crate) writer: &'a Writer,
}

/// The plans, by blob name.
pub(crate) type Plans = BTreeMap<String, Arc<IndexedPlan>>;

#[derive(Clone, Debug)]
pub(crate) struct Checker {
    /// The true state of the store.
    fleet: Fleet,
    names: Vec<NodeName>,
    facts: NodeHistory,
    proofs: RunEvidence,
    quiet_runs: QuietRuns,
    agents: Agents,
    moved: NodesInMotion,
    grants: Grants,
    reach: Unreachable,
    /// Gates whose checks have really passed.
    passed_gates: BTreeSet<(RolloutId, usize)>,
    /// The holder of the rollout controller that was lost, and when, until the takeover.
    orphaned: Option<(ReplicaId, SimTime)>,
    takeovers: Vec<SimTime>,
    /// The commit time of each revision.
    times: Vec<(SimTime, Revision)>,
    violations: Vec<Violation>,
    logged: usize,
    /// The engine's decisions so far.
    pub(crate) arms: ReachedArms,
    /// The time by which all soaks together may be too short, for any clock error.
    slack: SimTime,
    /// The largest difference between two clocks, for deadlines and windows.
    apart: SimTime,
    /// Every event is reported at its real time.
    is_inside: bool,
}

impl Checker {
    pub(crate) fn new(env: EnvName) -> Self {
        Self {
            fleet: Fleet::new(env),
            names: Vec::new(),
            facts: NodeHistory::default(),
            proofs: RunEvidence::default(),
            quiet_runs: QuietRuns::default(),
            agents: Agents::default(),
            moved: NodesInMotion::default(),
            grants: Grants::default(),
            reach: Unreachable::default(),
            passed_gates: BTreeSet::new(),
            orphaned: None,
            takeovers: Vec::new(),
            times: Vec::new(),
            violations: Vec::new(),
            logged: 0,
            arms: ReachedArms::default(),
            slack: CLOCKS_AGREE + TRAVEL,
            // Two clocks with the largest error in opposite directions.
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

    /// Violations that are not logged yet.
    pub(crate) fn unlogged(&mut self) -> Vec<Violation> {
        let violations = self.violations[self.logged..].to_vec();
        self.logged = self.violations.len();
        violations
    }

    pub(crate) fn gate_said(&mut self, id: RolloutId, wave: usize, passed: bool) {
        if passed {
            self.passed_gates.insert((id, wave));
        }
    }

    /// Nodes past their deadline by more than any clock error. The rollout must not wait for them any more.
    pub(crate) fn overdue(
        &self,
        plan: &RolloutPlan,
        record: &RolloutRecord,
        now: SimTime,
    ) -> Vec<(NodeName, MissedDeadline)> {
        let head = self.fleet.revision;
        let epoch = self.fleet.epoch();
        let over = |since: SimTime, deadline: jiff::SignedDuration| {
            let deadline = SimTime::try_from(deadline).unwrap_or_default();
            now.saturating_sub(since) > deadline + self.apart + LOOKS
        };
        let late = |(name, facts): (&NodeName, &NodeFacts)| {
            let grant = facts.granted_by(record.id, &record.to)?;
            let answered = facts.answered >= Generation { epoch, number: grant.revision.0 };
            let at_target = facts.version.as_ref() == Some(&record.to);
            let pending = answered && at_target && facts.shows == ReportedState::Pending;
            if !answered && over(grant.at, plan.strategy.deadlines.node) {
                return Some((name.clone(), MissedDeadline::Answer));
            }
            let since = facts.since.max(grant.at);
            (pending && over(since, plan.strategy.deadlines.pending)).then(|| (name.clone(), MissedDeadline::Others))
        };
        self.facts.designed(head).filter_map(late).collect()
    }

    /// The desired version of a node, by the keys.
    pub(crate) fn desired_version(&self, name: &NodeName) -> Option<Version> {
        let facts = self.facts.state_at(name, self.fleet.revision).filter(|facts| facts.designed)?;
        facts.desired(&self.facts.base(self.fleet.revision)).map(|(version, _)| version)
    }

    /// The revision of the store at a time.
    pub(crate) fn revision_at(&self, at: SimTime) -> Revision {
        let after = self.times.partition_point(|(made, _)| *made <= at);
        after.checked_sub(1).and_then(|place| self.times.get(place)).map(|(_, revision)| *revision).unwrap_or_default()
    }

    pub(crate) fn committed(&mut self, seen: &CommittedTxn<'_>, plans: &Plans) {
        self.times.push((seen.at, seen.revision));
        self.check_writer(seen);
        // Checked on the state before the transaction.
        let verdicts = self.check_rollouts(seen, plans);
        self.violations.extend(verdicts);
        let before = self.agents.base_of(&self.fleet);
        let effects = apply_changes(&mut self.fleet, seen.revision, seen.changes);
        self.agents.record_desired(seen, &self.fleet, before);
        self.check_quiet(seen.changes);
        let recorded = status::recorded(seen.changes);
        for node in &effects.nodes {
            self.check_status(node, recorded.contains(node));
            self.facts.note(node, &self.fleet, seen.revision, seen.at);
        }
        if effects.desired || effects.rollouts {
            self.facts.record_base(&self.fleet, seen.revision);
        }
        if effects.desired {
            self.facts.record_pauses(&self.fleet, seen.revision);
        }
        if effects.servers {
            self.facts.record_servers(&self.fleet, seen.revision);
            self.record_takeover(seen.at);
        }
    }
}

impl Checker {
    pub(super) fn check_writer(&mut self, seen: &CommittedTxn<'_>) {
        let Writer::Controller { name, replica, .. } = seen.writer else { return };
        let holder = self.fleet.controllers().get(name).map(|(record, _)| record.replica.clone());
        if holder.as_ref() != Some(replica) {
            let what = format!("{replica} writes for {name} at revision {}, but {holder:?} holds it", seen.revision);
            self.report(Rule::OneHolder, what);
        }
    }

    /// A server is lost, or cannot act for a while.
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

    /// The duration of each takeover.
    pub(crate) fn takeovers(&self) -> &[SimTime] {
        &self.takeovers
    }
}
