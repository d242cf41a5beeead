//! How a rollout stands that has told everybody in one transaction: each node by the same judgement that decides when it
//! ends, or stops.

use muster_core::fleet::Node;
use muster_core::names::{NodeName, Role};
use muster_core::rollout::progress::{Hold, NodeProgress, Progress, RolloutNodeState, WaveProgress};
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};

use crate::sight::Sight;
use crate::step::{AtOnce, Indexed, Place, Stands, error_of};

use super::{NAMED_HOLDS, removed};

/// Everybody was told in one transaction: each node answers for itself.
pub(super) fn at_once(plan: &Indexed, record: &RolloutRecord, sight: &Sight<'_>) -> Progress {
    let told = AtOnce::of(plan, record, sight);
    let stands = |name: &NodeName, node: &Node| told.as_ref().map(|told| told.stands(name, node));
    let mut seen = Seen { record, well: 0, waited_for: Vec::new(), others: Vec::new() };
    let mut waves: Vec<WaveProgress> = Vec::with_capacity(plan.plan().waves.len());
    for planned in &plan.plan().waves {
        let nodes = planned.nodes.iter().map(|planned| {
            let known = sight.fleet.get(&planned.node).filter(|node| node.is_designed());
            let Some(node) = known else { return removed(planned.node.clone(), planned.role.clone()) };
            seen.node(&planned.node, &planned.role, node, stands(&planned.node, node))
        });
        waves.push(WaveProgress { nodes: nodes.collect() });
    }
    // Everybody of the design is waited for: who joined since, and who was there already and is not well any more.
    if let Some(last) = waves.last_mut() {
        for (name, node, design) in sight.fleet.designed() {
            let stands = match plan.place(name) {
                Some(Place::InWave { .. }) => continue,
                Some(Place::Already) => stands(name, node).filter(|stands| !matches!(stands, Stands::Well(_))),
                None => stands(name, node),
            };
            if let Some(stands) = stands {
                last.nodes.push(seen.node(name, &design.role, node, Some(stands)));
            }
        }
    }
    Progress { waves, holds: seen.holds() }
}

/// What holds it up, as far as its nodes were looked at.
struct Seen<'a> {
    record: &'a RolloutRecord,
    well: usize,
    /// The first of those that it waits for, and of those that it does not.
    waited_for: Vec<Hold>,
    others: Vec<Hold>,
}

impl Seen<'_> {
    fn node(&mut self, name: &NodeName, role: &Role, node: &Node, stands: Option<Stands>) -> NodeProgress {
        let silent = |since| Some(Hold::Silent { node: name.clone(), since });
        let (state, deadline, hold) = match stands {
            // What everybody was told since says nothing about it.
            None => (RolloutNodeState::Granted, None, None),
            Some(Stands::Well(_)) => (RolloutNodeState::Healthy, None, None),
            Some(Stands::OnItsWay { until }) => (RolloutNodeState::Granted, Some(until), None),
            Some(Stands::Pending { since, until }) => (RolloutNodeState::Pending { since }, Some(until), None),
            Some(Stands::Silent { since, .. } | Stands::Away { since }) => {
                (RolloutNodeState::Granted, None, silent(since))
            }
            Some(Stands::NotThere) => (RolloutNodeState::Waiting, None, Some(Hold::Machine { node: name.clone() })),
            Some(Stands::Failed { how, forgiven, .. }) => {
                (RolloutNodeState::Failed { how, error: error_of(node, how), forgiven }, None, None)
            }
        };
        let granted = (state != RolloutNodeState::Waiting).then_some(self.record.started);
        if state == RolloutNodeState::Healthy {
            self.well += 1;
        } else {
            let is_waited_for = stands.is_some_and(Stands::is_waited_for);
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
        // It ends without them, unless there is nobody else.
        let is_for_others = self.waited_for.is_empty() && self.well == 0;
        holds.extend(if is_for_others { self.others } else { self.waited_for });
        holds
    }
}
