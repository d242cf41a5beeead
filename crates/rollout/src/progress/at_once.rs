//! Progress of an at-once rollout, by the same judgement that decides when it ends.

use muster_core::fleet::Node;
use muster_core::names::{NodeName, Role};
use muster_core::rollout::progress::{Hold, NodeProgress, Progress, RolloutNodeState, WaveProgress};
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};

use crate::decision::DecisionInput;
use crate::step::{AtOnceCheck, AtOnceState, IndexedPlan, PlanPosition, first_error_of};

use super::{NAMED_HOLDS, removed};

/// The progress of an at-once rollout.
pub(super) fn at_once(plan: &IndexedPlan, record: &RolloutRecord, input: &DecisionInput<'_>) -> Progress {
    let check = AtOnceCheck::new(plan, record, input);
    let stands = |name: &NodeName, node: &Node| check.as_ref().map(|check| check.state_of(name, node));
    let mut builder = AtOnceProgress { record, well: 0, waited_for: Vec::new(), others: Vec::new() };
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
    well: usize,
    /// The first nodes that it waits for, and the first that it does not.
    waited_for: Vec<Hold>,
    others: Vec<Hold>,
}

impl AtOnceProgress<'_> {
    fn node(&mut self, name: &NodeName, role: &Role, node: &Node, stands: Option<AtOnceState>) -> NodeProgress {
        let silent = |since| Some(Hold::Silent { node: name.clone(), since });
        let (state, deadline, hold) = match stands {
            // Versions that were given out later say nothing about it.
            None => (RolloutNodeState::Granted, None, None),
            Some(AtOnceState::Healthy(_)) => (RolloutNodeState::Healthy, None, None),
            Some(AtOnceState::Moving { until }) => (RolloutNodeState::Granted, Some(until), None),
            Some(AtOnceState::Pending { since, until }) => (RolloutNodeState::Pending { since }, Some(until), None),
            Some(AtOnceState::Silent { since, .. } | AtOnceState::Away { since }) => {
                (RolloutNodeState::Granted, None, silent(since))
            }
            Some(AtOnceState::NotThere) => {
                (RolloutNodeState::Waiting, None, Some(Hold::Machine { node: name.clone() }))
            }
            Some(AtOnceState::Failed { how, forgiven, .. }) => {
                (RolloutNodeState::Failed { how, error: first_error_of(node, how), forgiven }, None, None)
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
