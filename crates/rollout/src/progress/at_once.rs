//! How a rollout stands that has moved everybody in one transaction.

use muster_core::fleet::Node;
use muster_core::generation::Generation;
use muster_core::names::NodeName;
use muster_core::rollout::progress::{Hold, NodeProgress, NodeState, Progress, WaveProgress};
use muster_core::rollout::record::{FailedHow, Phase, RolloutRecord};
use muster_core::service_state::{Configured, ServiceState, Validated};

use crate::sight::Sight;
use crate::step::{Indexed, what_went_wrong};

use super::{NAMED_HOLDS, removed};

/// Everybody was told in one transaction: each node answers for itself.
pub(super) fn at_once(plan: &Indexed, record: &RolloutRecord, sight: &Sight<'_>) -> Progress {
    let waves = plan.plan().waves.iter().map(|planned| {
        let nodes = planned.nodes.iter().map(|planned| {
            let known = sight.fleet.get(&planned.node).filter(|node| node.is_designed());
            let Some(node) = known else { return removed(planned.node.clone(), planned.role.clone()) };
            NodeProgress {
                node: planned.node.clone(),
                role: planned.role.clone(),
                state: answered_at_once(sight, record, &planned.node, node),
                granted: Some(record.started),
                deadline: None,
                hold: None,
            }
        });
        WaveProgress { nodes: nodes.collect() }
    });
    let mut holds = Vec::new();
    if let Phase::Paused { why } = &record.phase {
        holds.push(Hold::Halted { why: why.clone() });
    }
    let waves: Vec<WaveProgress> = waves.collect();
    if record.phase.is_open() {
        let undone = waves.iter().flat_map(|wave| &wave.nodes).filter(|node| match node.state {
            NodeState::Healthy | NodeState::Removed | NodeState::Skipped => false,
            NodeState::Waiting
            | NodeState::Granted
            | NodeState::Pending { .. }
            | NodeState::Soaking { .. }
            | NodeState::Failed { .. } => true,
        });
        let named = undone.take(NAMED_HOLDS);
        holds.extend(named.map(|NodeProgress { node, state, .. }| Hold::Node {
            node: node.clone(),
            state: state.clone(),
            deadline: None,
        }));
    }
    Progress { waves, holds }
}

fn answered_at_once(sight: &Sight<'_>, record: &RolloutRecord, name: &NodeName, node: &Node) -> NodeState {
    let told = sight.fleet.desired_of(name).filter(|told| told.version == record.to);
    let answered = |generation: Generation| node.state().filter(|_| node.has_answered(generation));
    let Some((state, leaf)) = told.and_then(|told| answered(told.generation)) else { return NodeState::Granted };
    let last = node.observed.as_ref().and_then(|(observed, _)| observed.last.as_ref());
    let failed =
        |how| NodeState::Failed { how, error: last.and_then(|last| what_went_wrong(last, how)), forgiven: true };
    match state {
        _ if *state.version() != record.to => NodeState::Granted,
        ServiceState::Configured { result: Configured::Success, .. } => NodeState::Granted,
        ServiceState::Configured { result: Configured::Pending, .. } => NodeState::Pending { since: leaf.since },
        ServiceState::Configured { result: Configured::Failure, .. } => failed(FailedHow::NotConfigured),
        ServiceState::Validated { result: Validated::Failure, .. } => failed(FailedHow::NotValidated),
        ServiceState::Validated { result: Validated::Success, .. } => NodeState::Healthy,
    }
}
