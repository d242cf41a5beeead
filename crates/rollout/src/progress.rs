//! Progress of a rollout, and the reasons why its nodes do not move. Computed on request, from the same survey and the
//! same choice of nodes as a step.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_core::fleet::Node;
use muster_core::names::{NodeName, Role};
use muster_core::node::agent::CallInterval;
use muster_core::node::policy::PolicyRecord;
use muster_core::rollout::progress::{Hold, NodeProgress, Progress, RolloutNodeState, WaveProgress};
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};
use muster_core::rollout::windows;

use crate::decision::DecisionInput;
use crate::health::{Health, grant_of};
use crate::step::{
    AtOnceCheck, AtOnceState, BudgetTracker, IndexedPlan, NodeFacts, PlanPosition, Survey, WaveAdvance, advance_waves,
    first_error_of, next_call,
};

/// Single nodes that are named as reasons. The state of every node is with its wave.
const NAMED_HOLDS: usize = 20;

/// The progress of a rollout. Only meaningful for the active one: later grants say nothing about an older rollout.
pub fn progress(plan: &IndexedPlan, record: &RolloutRecord, input: &DecisionInput<'_>) -> Progress {
    if record.at_once {
        return at_once(plan, record, input);
    }
    let survey = Survey::new(plan, record, input);
    let mut budgets = BudgetTracker::new(plan, record, &survey, input);
    let mut refused: BTreeMap<usize, Hold> = BTreeMap::new();
    budgets.choose(Some(&mut |fact, hold| drop(refused.insert(fact.index, hold))));
    let staged = StagedProgress { record, survey: &survey, input, refused };

    let waves = plan.plan().waves.iter().enumerate();
    let waves = waves.map(|(wave, planned)| {
        let orders = plan.orders_in(wave).zip(&planned.nodes);
        let in_plan = orders.filter_map(|(order, node)| match survey.at(order) {
            Some(fact) => staged.node(fact),
            None => Some(removed(node.node.clone(), node.role.clone())),
        });
        let late = survey.late().filter(|fact| fact.wave == Some(wave)).filter_map(|fact| staged.node(fact));
        WaveProgress { nodes: in_plan.chain(late).collect() }
    });
    Progress { waves: waves.collect(), holds: staged.holds(plan) }
}

/// The progress of a rollout, active or not.
pub fn final_progress(plan: &IndexedPlan, record: &RolloutRecord, input: &DecisionInput<'_>) -> Progress {
    let mut stood = progress(plan, record, input);
    let governs = input.fleet.active_rollout_pointer().is_some_and(|(active, _)| active.id == record.id);
    if !governs && record.phase == RolloutPhase::Completed {
        // Later grants say nothing about it, but its completion does.
        let nodes = stood.waves.iter_mut().flat_map(|wave| &mut wave.nodes);
        nodes.filter(|node| node.state == RolloutNodeState::Waiting).for_each(|node| {
            node.state = RolloutNodeState::Healthy;
            node.hold = None;
        });
    }
    if !record.phase.is_open() || !governs {
        stood.holds.clear();
    }
    stood
}

/// The reason why an open rollout does not move a node; none if there is nothing left to do with it.
pub fn hold_reason(
    plan: &IndexedPlan,
    record: &RolloutRecord,
    input: &DecisionInput<'_>,
    node: &NodeName,
) -> Option<Hold> {
    if !record.phase.is_open() {
        return None;
    }
    let progress = progress(plan, record, input);
    let found = progress.waves.iter().enumerate().find_map(|(wave, nodes)| {
        let of_it = nodes.nodes.iter().find(|progress| progress.node == *node)?;
        Some((wave, of_it.clone()))
    });
    let (wave, NodeProgress { state, hold, deadline, .. }) = found?;
    match state {
        RolloutNodeState::Healthy | RolloutNodeState::Skipped | RolloutNodeState::Removed => None,
        RolloutNodeState::Granted
        | RolloutNodeState::Pending { .. }
        | RolloutNodeState::Soaking { .. }
        | RolloutNodeState::Failed { .. } => Some(hold.unwrap_or(Hold::Node { node: node.clone(), state, deadline })),
        RolloutNodeState::Waiting if !record.at_once && wave >= record.waves.len() => {
            turn(plan, record.waves.len().saturating_sub(1))
        }
        // A reason that affects all nodes comes first.
        RolloutNodeState::Waiting => {
            let widest = progress.holds.into_iter().next();
            let is_for_all = matches!(widest, Some(Hold::Halted { .. } | Hold::Window { .. }));
            if is_for_all { widest } else { hold.or(widest) }
        }
    }
}

fn turn(plan: &IndexedPlan, wave: usize) -> Option<Hold> {
    let planned = plan.plan().waves.get(wave)?;
    Some(Hold::Turn { stage: planned.stage, wave: planned.wave })
}

fn removed(node: NodeName, role: muster_core::names::Role) -> NodeProgress {
    NodeProgress { node, role, state: RolloutNodeState::Removed, granted: None, deadline: None, hold: None }
}

/// The inputs of the progress of a staged rollout.
struct StagedProgress<'s> {
    record: &'s RolloutRecord,
    survey: &'s Survey,
    input: &'s DecisionInput<'s>,
    /// By the index of the node.
    refused: BTreeMap<usize, Hold>,
}

impl StagedProgress<'_> {
    fn node(&self, fact: &NodeFacts) -> Option<NodeProgress> {
        let (name, role) = (self.survey.name(fact)?, self.survey.role(fact)?);
        let grant = self.input.fleet.get(name).and_then(|node| grant_of(self.record, node));
        let deadline = match fact.health {
            Health::Moving { deadline } => deadline,
            Health::Pending { deadline } => Some(deadline),
            Health::Waiting
            | Health::Soaking { .. }
            | Health::Away { .. }
            | Health::Healthy { .. }
            | Health::Failed { .. }
            | Health::Skipped
            | Health::Unprovisioned => None,
        };
        Some(NodeProgress {
            node: name.clone(),
            role: role.clone(),
            state: self.state(fact),
            granted: grant.map(|(grant, _)| grant.granted),
            deadline,
            hold: self.hold(fact),
        })
    }

    fn state(&self, fact: &NodeFacts) -> RolloutNodeState {
        match fact.health {
            Health::Waiting | Health::Unprovisioned => RolloutNodeState::Waiting,
            Health::Moving { .. } | Health::Away { .. } => RolloutNodeState::Granted,
            Health::Pending { deadline } => {
                let node = self.survey.name(fact).and_then(|name| self.input.fleet.get(name));
                let since = node.and_then(Node::state).map_or(deadline, |(_, leaf)| leaf.since);
                RolloutNodeState::Pending { since }
            }
            Health::Soaking { until } => RolloutNodeState::Soaking { until },
            Health::Healthy { .. } => RolloutNodeState::Healthy,
            Health::Failed { how, .. } => {
                let error = self.survey.failure(fact, self.input.fleet).and_then(|failure| failure.error);
                RolloutNodeState::Failed { how, error, forgiven: !fact.counts_as_failed(self.survey.reviewed) }
            }
            Health::Skipped => RolloutNodeState::Skipped,
        }
    }

    /// The reason why a node of a started wave waits.
    fn hold(&self, fact: &NodeFacts) -> Option<Hold> {
        let name = self.survey.name(fact)?;
        match fact.health {
            Health::Unprovisioned => Some(Hold::Machine { node: name.clone() }),
            Health::Away { since } => Some(Hold::Silent { node: name.clone(), since }),
            Health::Waiting => self.refused.get(&fact.index).cloned(),
            Health::Moving { .. } | Health::Pending { .. } => not_due(name, next_call((self.input.link)(name))),
            Health::Soaking { .. } | Health::Healthy { .. } | Health::Failed { .. } | Health::Skipped => None,
        }
    }

    /// The reasons why the rollout waits, the most general first.
    fn holds(&self, plan: &IndexedPlan) -> Vec<Hold> {
        let mut holds = Vec::new();
        match &self.record.phase {
            RolloutPhase::Running => {}
            RolloutPhase::Paused { why } => holds.push(Hold::Halted { why: why.clone() }),
            RolloutPhase::Completed
            | RolloutPhase::Aborted { .. }
            | RolloutPhase::RolledBack { .. }
            | RolloutPhase::Superseded { .. } => {
                return Vec::new();
            }
        }
        let now = self.input.now;
        let windows = &plan.plan().strategy.windows;
        if !windows::is_open(windows, now) {
            holds.push(Hold::Window { opens: windows::next_opening(windows, now) });
        }
        let mut next = self.record.clone();
        if let WaveAdvance::Held(hold) = advance_waves(plan, &mut next, self.survey, now) {
            holds.push(hold);
        }
        self.hold_of_nodes(plan, &mut holds);
        holds
    }

    /// The reasons of single nodes: each kind once, and the first nodes by name.
    fn hold_of_nodes(&self, plan: &IndexedPlan, holds: &mut Vec<Hold>) {
        let mut wide = Vec::new();
        let mut named = Vec::new();
        let mut seen: BTreeSet<(u8, usize)> = BTreeSet::new();
        let mut is_budget = false;
        for fact in self.survey.in_order(plan, self.record.waves.len()).filter(|fact| !fact.health.is_done()) {
            let Some(hold) = self.hold(fact) else {
                if fact.health != Health::Waiting
                    && named.len() < NAMED_HOLDS
                    && let Some(NodeProgress { node, state, deadline, .. }) = self.node(fact)
                {
                    named.push(Hold::Node { node, state, deadline });
                }
                continue;
            };
            let (rank, of) = match &hold {
                Hold::Brake { .. } => (0, fact.failure_domain),
                Hold::RoleBudget { .. } => (1, fact.role),
                Hold::DomainBudget { .. } => (2, fact.budget_label.unwrap_or_default()),
                Hold::Ramp { .. } => (3, fact.wave.unwrap_or_default()),
                Hold::Turn { .. } => (4, fact.role),
                Hold::Halted { .. }
                | Hold::Window { .. }
                | Hold::Soak { .. }
                | Hold::Gate { .. }
                | Hold::Promotion { .. }
                | Hold::Node { .. }
                | Hold::Paused { .. }
                | Hold::Cordoned { .. }
                | Hold::Silent { .. }
                | Hold::NotDue { .. }
                | Hold::Machine { .. } => {
                    if named.len() < NAMED_HOLDS {
                        named.push(hold);
                    }
                    continue;
                }
            };
            is_budget |= matches!(hold, Hold::RoleBudget { .. } | Hold::DomainBudget { .. });
            if seen.insert((rank, of)) {
                wide.push((rank, hold));
            }
        }
        wide.sort_by_key(|(rank, _)| *rank);
        holds.extend(wide.into_iter().map(|(_, hold)| hold));
        // Failed nodes block nothing themselves, but the budget that they use does.
        if is_budget {
            let failed = self.survey.facts.iter().filter(|fact| fact.failed_how().is_some() && fact.is_unavailable);
            for fact in failed.take(NAMED_HOLDS.saturating_sub(named.len())) {
                let node = self.survey.name(fact).cloned();
                named.extend(node.map(|node| Hold::Node { node, state: self.state(fact), deadline: None }));
            }
        }
        holds.append(&mut named);
    }
}

/// A node that waits for the next call of its agent.
fn not_due(name: &NodeName, next_call: Option<(CallInterval, Timestamp)>) -> Option<Hold> {
    next_call.map(|(every, due)| Hold::NotDue { node: name.clone(), every, due })
}

/// The progress of an at-once rollout.
pub(super) fn at_once(plan: &IndexedPlan, record: &RolloutRecord, input: &DecisionInput<'_>) -> Progress {
    let check = AtOnceCheck::new(plan, record, input);
    let stands = |name: &NodeName, node: &Node| check.as_ref().map(|check| check.state_of(name, node));
    let mut builder = AtOnceProgress { record, input, well: 0, waited_for: Vec::new(), others: Vec::new() };
    let mut waves: Vec<WaveProgress> = Vec::with_capacity(plan.plan().waves.len());
    for planned in &plan.plan().waves {
        let nodes = planned.nodes.iter().map(|planned| {
            let known = input.fleet.get(&planned.node).filter(|node| node.is_designed());
            let Some(node) = known else { return removed(planned.node.clone(), planned.role.clone()) };
            builder.node(&planned.node, &planned.role, node, stands(&planned.node, node))
        });
        waves.push(WaveProgress { nodes: nodes.collect() });
    }
    // All nodes of the design are waited for, including those that joined later, and those that ran the target and no
    // longer do.
    if let Some(last) = waves.last_mut() {
        for (name, node, design) in input.fleet.designed() {
            let stands = match plan.position(name) {
                Some(PlanPosition::InWave { .. }) => continue,
                Some(PlanPosition::Already) => {
                    stands(name, node).filter(|stands| !matches!(stands, AtOnceState::Healthy(_)))
                }
                None => stands(name, node),
            };
            if let Some(stands) = stands {
                last.nodes.push(builder.node(name, &design.role, node, Some(stands)));
            }
        }
    }
    Progress { waves, holds: builder.holds() }
}

/// The reasons why the rollout waits.
struct AtOnceProgress<'a> {
    record: &'a RolloutRecord,
    input: &'a DecisionInput<'a>,
    well: usize,
    /// The first nodes that it waits for, and the first that it does not.
    waited_for: Vec<Hold>,
    others: Vec<Hold>,
}

impl AtOnceProgress<'_> {
    fn node(&mut self, name: &NodeName, role: &Role, node: &Node, stands: Option<AtOnceState>) -> NodeProgress {
        let silent = |since| Some(Hold::Silent { node: name.clone(), since });
        let waits = || not_due(name, next_call((self.input.link)(name)));
        let (state, deadline, hold) = match stands {
            // Versions that were given out later say nothing about it.
            None => (RolloutNodeState::Granted, None, None),
            Some(AtOnceState::Healthy(_)) => (RolloutNodeState::Healthy, None, None),
            Some(AtOnceState::Moving { until }) => (RolloutNodeState::Granted, Some(until), waits()),
            Some(AtOnceState::Pending { since, until }) => (RolloutNodeState::Pending { since }, Some(until), waits()),
            Some(AtOnceState::Silent { since, .. } | AtOnceState::Unreachable { since }) => {
                (RolloutNodeState::Granted, None, silent(since))
            }
            Some(AtOnceState::Cordoned) => {
                let cordoned = |cordon: &PolicyRecord| Hold::Cordoned { node: name.clone(), cordon: cordon.clone() };
                (RolloutNodeState::Waiting, None, node.cordon().map(cordoned))
            }
            Some(AtOnceState::Skipped) => (RolloutNodeState::Skipped, None, None),
            Some(AtOnceState::Unprovisioned) => {
                (RolloutNodeState::Waiting, None, Some(Hold::Machine { node: name.clone() }))
            }
            Some(AtOnceState::Failed { how, reviewed, .. }) => {
                (RolloutNodeState::Failed { how, error: first_error_of(node, how), forgiven: reviewed }, None, None)
            }
        };
        let granted = (state != RolloutNodeState::Waiting).then_some(self.record.started);
        if state == RolloutNodeState::Healthy {
            self.well += 1;
        } else {
            let is_waited_for = stands.is_some_and(AtOnceState::is_waited_for);
            let holds = if is_waited_for { &mut self.waited_for } else { &mut self.others };
            if holds.len() < NAMED_HOLDS {
                let own = || Hold::Node { node: name.clone(), state: state.clone(), deadline };
                holds.push(hold.clone().unwrap_or_else(own));
            }
        }
        NodeProgress { node: name.clone(), role: role.clone(), state, granted, deadline, hold }
    }

    fn holds(self) -> Vec<Hold> {
        let mut holds = match &self.record.phase {
            RolloutPhase::Running => Vec::new(),
            RolloutPhase::Paused { why } => vec![Hold::Halted { why: why.clone() }],
            RolloutPhase::Completed
            | RolloutPhase::Aborted { .. }
            | RolloutPhase::RolledBack { .. }
            | RolloutPhase::Superseded { .. } => {
                return Vec::new();
            }
        };
        // The rollout ends without these nodes, unless there are no other ones.
        let is_for_others = self.waited_for.is_empty() && self.well == 0;
        holds.extend(if is_for_others { self.others } else { self.waited_for });
        holds
    }
}
