//! How a rollout stands, and why what does not move does not: worked out when somebody asks, by the same look at the fleet
//! and the same choice of nodes that a step makes.

mod at_once;

use std::collections::BTreeSet;

use muster_core::names::NodeName;
use muster_core::rollout::progress::{Hold, NodeProgress, Progress, RolloutNodeState, WaveProgress};
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};
use muster_core::rollout::windows;

use crate::health::{Health, grant_of};
use crate::sight::Sight;
use crate::step::{Fact, Indexed, Ledger, Survey, WaveAdvance, move_on};

/// So many single nodes are named as what holds a rollout up. How each of them stands is with the waves.
const NAMED_HOLDS: usize = 20;

/// How a rollout stands. It is of the rollout that governs: what others have granted since says nothing about an older one.
pub fn progress(plan: &Indexed, record: &RolloutRecord, sight: &Sight<'_>) -> Progress {
    if record.at_once {
        return at_once::at_once(plan, record, sight);
    }
    let survey = Survey::take(plan, record, sight);
    let mut ledger = Ledger::open(plan, record, &survey, sight);
    let mut refused: Vec<(&NodeName, Hold)> = Vec::new();
    ledger.choose(Some(&mut |fact, hold| refused.push((fact.name, hold))));
    // In the order of names, as the facts are.
    refused.sort_by_key(|(name, _)| *name);
    let told = Told { record, survey: &survey, sight, refused };

    let waves = plan.plan().waves.iter().enumerate();
    let waves = waves.map(|(wave, planned)| {
        let orders = plan.orders_in(wave).zip(&planned.nodes);
        let in_plan = orders.map(|(order, node)| match survey.at(order) {
            Some(fact) => told.node(fact),
            None => removed(node.node.clone(), node.role.clone()),
        });
        let late = survey.late().filter(|fact| fact.wave == Some(wave)).map(|fact| told.node(fact));
        WaveProgress { nodes: in_plan.chain(late).collect() }
    });
    Progress { waves: waves.collect(), holds: told.holds(plan) }
}

/// How the nodes of a rollout stand, whether or not it governs.
pub fn stood(plan: &Indexed, record: &RolloutRecord, sight: &Sight<'_>) -> Progress {
    let mut stood = progress(plan, record, sight);
    let governs = sight.fleet.active_rollout().is_some_and(|(active, _)| active.id == record.id);
    if !governs && record.phase == RolloutPhase::Completed {
        // What was granted since says nothing about it; but that it was completed does.
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

/// Why a node is not moved by a rollout that has not ended, or none if nothing is to be done with it.
pub fn why_not(plan: &Indexed, record: &RolloutRecord, sight: &Sight<'_>, node: &NodeName) -> Option<Hold> {
    if !record.phase.is_open() {
        return None;
    }
    let progress = progress(plan, record, sight);
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
        // What concerns everybody comes before what concerns this one.
        RolloutNodeState::Waiting => {
            let widest = progress.holds.into_iter().next();
            let is_for_all = matches!(widest, Some(Hold::Halted { .. } | Hold::Window { .. }));
            if is_for_all { widest } else { hold.or(widest) }
        }
    }
}

fn turn(plan: &Indexed, wave: usize) -> Option<Hold> {
    let planned = plan.plan().waves.get(wave)?;
    Some(Hold::Turn { stage: planned.stage, wave: planned.wave })
}

fn removed(node: NodeName, role: muster_core::names::Role) -> NodeProgress {
    NodeProgress { node, role, state: RolloutNodeState::Removed, granted: None, deadline: None, hold: None }
}

/// What the answers are taken from.
struct Told<'s> {
    record: &'s RolloutRecord,
    survey: &'s Survey<'s>,
    sight: &'s Sight<'s>,
    refused: Vec<(&'s NodeName, Hold)>,
}

impl Told<'_> {
    fn node(&self, fact: &Fact<'_>) -> NodeProgress {
        let grant = grant_of(self.record, fact.node);
        let deadline = match fact.health {
            Health::Moving { deadline } => deadline,
            Health::Pending { deadline } => Some(deadline),
            Health::Waiting
            | Health::Soaking { .. }
            | Health::Away { .. }
            | Health::Healthy { .. }
            | Health::Failed { .. }
            | Health::Skipped
            | Health::NotThere => None,
        };
        NodeProgress {
            node: fact.name.clone(),
            role: fact.record.role.clone(),
            state: self.state(fact),
            granted: grant.map(|(grant, _)| grant.granted),
            deadline,
            hold: self.hold(fact),
        }
    }

    fn state(&self, fact: &Fact<'_>) -> RolloutNodeState {
        match fact.health {
            Health::Waiting | Health::NotThere => RolloutNodeState::Waiting,
            Health::Moving { .. } | Health::Away { .. } => RolloutNodeState::Granted,
            Health::Pending { deadline } => {
                let since = fact.node.state().map_or(deadline, |(_, leaf)| leaf.since);
                RolloutNodeState::Pending { since }
            }
            Health::Soaking { until } => RolloutNodeState::Soaking { until },
            Health::Healthy { .. } => RolloutNodeState::Healthy,
            Health::Failed { how, .. } => {
                let error = fact.failure().and_then(|failure| failure.error);
                RolloutNodeState::Failed { how, error, forgiven: !fact.counts_as_failed(self.survey.forgiven) }
            }
            Health::Skipped => RolloutNodeState::Skipped,
        }
    }

    /// What a node of a wave that has begun waits for.
    fn hold(&self, fact: &Fact<'_>) -> Option<Hold> {
        match fact.health {
            Health::NotThere => Some(Hold::Machine { node: fact.name.clone() }),
            Health::Away { since } => Some(Hold::Silent { node: fact.name.clone(), since }),
            Health::Waiting => {
                let found = self.refused.binary_search_by(|(name, _)| (*name).cmp(fact.name)).ok()?;
                self.refused.get(found).map(|(_, hold)| hold.clone())
            }
            Health::Moving { .. }
            | Health::Pending { .. }
            | Health::Soaking { .. }
            | Health::Healthy { .. }
            | Health::Failed { .. }
            | Health::Skipped => None,
        }
    }

    /// What holds the rollout up, the widest first.
    fn holds(&self, plan: &Indexed) -> Vec<Hold> {
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
        let now = self.sight.now;
        let windows = &plan.plan().strategy.windows;
        if !windows::is_open(windows, now) {
            holds.push(Hold::Window { opens: windows::next_opening(windows, now) });
        }
        let mut next = self.record.clone();
        if let WaveAdvance::Held(hold) = move_on(plan, &mut next, self.survey, now) {
            holds.push(hold);
        }
        self.hold_of_nodes(plan, &mut holds);
        holds
    }

    /// What single nodes wait for: each reason once, and the first few nodes by name.
    fn hold_of_nodes(&self, plan: &Indexed, holds: &mut Vec<Hold>) {
        let mut wide = Vec::new();
        let mut named = Vec::new();
        let mut seen: BTreeSet<(u8, usize)> = BTreeSet::new();
        let mut is_budget = false;
        for fact in self.survey.in_order(plan, self.record.waves.len()).filter(|fact| !fact.health.is_done()) {
            let Some(hold) = self.hold(fact) else {
                if fact.health != Health::Waiting && named.len() < NAMED_HOLDS {
                    let NodeProgress { node, state, deadline, .. } = self.node(fact);
                    named.push(Hold::Node { node, state, deadline });
                }
                continue;
            };
            let (rank, of) = match &hold {
                Hold::Brake { .. } => (0, fact.rack),
                Hold::RoleBudget { .. } => (1, fact.role),
                Hold::DomainBudget { .. } => (2, fact.domain.unwrap_or_default()),
                Hold::Ramp { .. } => (3, fact.wave.unwrap_or_default()),
                Hold::Turn { .. } => (4, fact.role),
                Hold::Halted { .. }
                | Hold::Window { .. }
                | Hold::Soak { .. }
                | Hold::Gate { .. }
                | Hold::Promotion { .. }
                | Hold::Node { .. }
                | Hold::Paused { .. }
                | Hold::Silent { .. }
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
        // Those that have failed hold nothing up by that, but what they use of the budget does.
        if is_budget {
            let failed = self.survey.facts.iter().filter(|fact| fact.failed_how().is_some() && fact.is_unavailable);
            for fact in failed.take(NAMED_HOLDS.saturating_sub(named.len())) {
                named.push(Hold::Node { node: fact.name.clone(), state: self.state(fact), deadline: None });
            }
        }
        holds.append(&mut named);
    }
}
