//! Builds the rollout status that the API returns.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::fleet::Fleet;
use muster_core::names::{NodeName, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::progress::{Hold, NodeCounts, NodeProgress, Progress, RolloutNodeState};
use muster_core::rollout::record::{FailedNode, RolloutPhase, RolloutRecord};
use muster_core::txn::Revision;
use muster_rollout::progress::{self, hold_reason};
use muster_rollout::start::stable_version;
use muster_rollout::step::IndexedPlan;
use muster_wire::hints::{RolloutSituation, next_commands};
use muster_wire::rollout::{
    FAILED_SHOWN, LEFT_ALONE_SHOWN, RolloutBrief, RolloutRow, RolloutStatus, SlotRow, UnmovedNode, WaveRow,
};

use super::host::with_fleet_input;
use super::plans::PlanUnreadable;
use crate::api::chain;
use crate::app::{Agents, Reader};

/// Result of reading a plan.
pub(crate) type PlanResult = Result<Arc<IndexedPlan>, PlanUnreadable>;

/// Plan of the rollout that decides what nodes run. It is read before the view is locked.
pub(crate) async fn deciding_plan(reader: &Reader, env: &muster_core::names::EnvName) -> Option<Arc<IndexedPlan>> {
    let digest = {
        let fleets = reader.view.fleets();
        let (record, _) = fleets.get(env)?.active_rollout_record()?;
        record.plan.clone()
    };
    reader.plans.get(&digest).await.ok()
}

/// Full status of one rollout.
pub(crate) fn status(
    reader: &Reader,
    agents: &Agents,
    fleet: &Fleet,
    (record, record_at): (&RolloutRecord, Revision),
    plan: &PlanResult,
    outcome: Option<Progress>,
    numbers: bool,
) -> RolloutStatus {
    let now = || plan.as_ref().map(|plan| current_progress(reader, agents, fleet, record, plan)).unwrap_or_default();
    let progress = outcome.unwrap_or_else(now);
    let counts = all(&progress);
    let nodes = || progress.waves.iter().flat_map(|wave| &wave.nodes);
    let failed = nodes().filter_map(failure).take(FAILED_SHOWN).collect();
    let slots = nodes().filter_map(|node| slot(fleet, record, node)).collect();
    let (planned, already, strategy, predicted) = match plan {
        Ok(plan) => {
            let plan = plan.plan();
            let already = u32::try_from(plan.already.len()).unwrap_or(u32::MAX);
            (plan.waves.as_slice(), already, Some(plan.strategy.clone()), Some(plan.predicted))
        }
        Err(_) => (Default::default(), 0, None, None),
    };
    let waves = planned.iter().zip(&progress.waves).enumerate().map(|(index, (planned, wave))| WaveRow {
        stage: planned.stage,
        wave: planned.wave,
        canary: planned.canary,
        soak: planned.soak,
        promote: planned.promote,
        state: record.waves.get(index).cloned(),
        counts: wave.counts(),
        nodes: if numbers { Vec::new() } else { wave.nodes.clone() },
    });
    let left_alone = plan.as_ref().map(|plan| left_alone(fleet, record, plan.plan())).unwrap_or_default();
    RolloutStatus {
        record: record.clone(),
        record_at,
        waves: waves.collect(),
        already,
        counts,
        failed,
        slots,
        holds: progress.holds,
        strategy,
        predicted,
        problem: plan.as_ref().err().map(|error| chain(error)),
        rolled_back_by: rolled_back_by(&record.phase),
        stable: back_to(fleet, record),
        left_alone_count: u32::try_from(left_alone.len()).unwrap_or(u32::MAX),
        left_alone: left_alone.into_iter().take(LEFT_ALONE_SHOWN).collect(),
        desired_versions: desired_versions(fleet),
        now: reader.clock.now(),
        revision: fleet.revision,
    }
}

/// Version that a rollback would return to. A rollback is not rolled back without `undo_rollback`.
fn back_to(fleet: &Fleet, record: &RolloutRecord) -> Option<Version> {
    stable_version(fleet, record.id).filter(|_| record.rolls_back.is_none())
}

/// Nodes that this rollback leaves at another version. Unknown after the next rollout has begun.
fn left_alone(fleet: &Fleet, record: &RolloutRecord, plan: &RolloutPlan) -> Vec<UnmovedNode> {
    let decides = fleet.active_rollout_pointer().is_some_and(|(active, _)| active.id == record.id);
    let Some(back_from) = record.rolls_back.filter(|_| decides) else { return Vec::new() };
    let stays = plan.already.iter().filter_map(|node| {
        let (granted, _) = fleet.granted(node).filter(|(granted, _)| granted.version != record.to)?;
        let granted_by = (granted.kept.is_none() && granted.rollout != back_from).then_some(granted.rollout);
        Some(UnmovedNode { node: node.clone(), version: granted.version.clone(), granted_by })
    });
    stays.collect()
}

/// Number of nodes that should run each version. Earlier rollouts may have ended halfway.
fn desired_versions(fleet: &Fleet) -> BTreeMap<Version, u32> {
    let mut counts = BTreeMap::new();
    for desired in fleet.designed().filter_map(|(name, _, _)| fleet.desired_of(name)) {
        *counts.entry(desired.version).or_default() += 1;
    }
    counts
}

/// Progress of the nodes of a rollout.
fn current_progress(
    reader: &Reader,
    agents: &Agents,
    fleet: &Fleet,
    record: &RolloutRecord,
    plan: &IndexedPlan,
) -> Progress {
    with_fleet_input(reader, agents, fleet, |input| progress::final_progress(plan, record, input))
}

fn all(progress: &Progress) -> NodeCounts {
    let mut counts = NodeCounts::default();
    progress.waves.iter().flat_map(|wave| &wave.nodes).for_each(|node| counts.add(&node.state));
    counts
}

fn failure(node: &NodeProgress) -> Option<FailedNode> {
    if let RolloutNodeState::Failed { how, error, .. } = &node.state {
        return Some(FailedNode { node: node.node.clone(), how: *how, error: error.clone() });
    }
    None
}

/// Slots in use of a rollout.
pub(crate) fn slots(
    reader: &Reader,
    agents: &Agents,
    fleet: &Fleet,
    record: &RolloutRecord,
    plan: &IndexedPlan,
) -> Vec<SlotRow> {
    let progress = current_progress(reader, agents, fleet, record, plan);
    progress.waves.iter().flat_map(|wave| &wave.nodes).filter_map(|node| slot(fleet, record, node)).collect()
}

fn slot(fleet: &Fleet, record: &RolloutRecord, node: &NodeProgress) -> Option<SlotRow> {
    let is_used = match &node.state {
        RolloutNodeState::Granted
        | RolloutNodeState::Pending { .. }
        | RolloutNodeState::Soaking { .. }
        | RolloutNodeState::Failed { .. } => true,
        RolloutNodeState::Waiting
        | RolloutNodeState::Healthy
        | RolloutNodeState::Skipped
        | RolloutNodeState::Removed => false,
    };
    let (desired, fence) = fleet.get(&node.node)?.desired.as_ref()?;
    let is_ours = desired.rollout == record.id && !record.operator.released.contains(&node.node);
    (is_used && is_ours).then(|| SlotRow {
        node: node.node.clone(),
        role: node.role.clone(),
        rollout: record.id,
        version: desired.version.clone(),
        state: node.state.clone(),
        granted: desired.granted,
        fence: *fence,
        expires: desired.expires,
        deadline: node.deadline,
    })
}

/// One row of the history. `active` is the status of the rollout that decides what nodes run: its record has the number of
/// healthy nodes at the last step only.
pub(crate) fn row(fleet: &Fleet, record: &RolloutRecord, active: Option<&RolloutBrief>) -> RolloutRow {
    let active = active.filter(|active| active.id == record.id);
    RolloutRow {
        id: record.id,
        from: record.from.clone(),
        to: record.to.clone(),
        phase: record.phase.clone(),
        phase_since: record.phase_since,
        started: record.started,
        by: record.by.clone(),
        rolls_back: record.rolls_back,
        at_once: record.at_once,
        healthy: active.map_or(record.steps.healthy, |active| active.healthy),
        grants: record.steps.grants,
        active: fleet.active_rollout_pointer().is_some_and(|(active, _)| active.id == record.id),
    }
}

/// Short status of the rollout that decides what nodes run. Without its plan, from its record alone.
pub(crate) fn brief(
    reader: &Reader,
    agents: &Agents,
    fleet: &Fleet,
    plan: Option<&IndexedPlan>,
) -> Option<RolloutBrief> {
    let (record, _) = fleet.active_rollout_record()?;
    // The progress matters for a rollout that is open or was aborted; otherwise the record has the counts.
    let plan = plan.filter(|_| record.phase.is_open() || matches!(record.phase, RolloutPhase::Aborted { .. }));
    let progress = plan.map(|plan| current_progress(reader, agents, fleet, record, plan)).unwrap_or_default();
    let counts = all(&progress);
    let held_by = progress.holds.into_iter().next();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Some(RolloutBrief {
        id: record.id,
        from: record.from.clone(),
        to: record.to.clone(),
        phase: record.phase.clone(),
        phase_since: record.phase_since,
        at_once: record.at_once,
        wave: count(record.waves.len()),
        waves: plan.map_or(count(record.waves.len()), |plan| count(plan.plan().waves.len())),
        healthy: if plan.is_some() { counts.healthy } else { record.steps.healthy },
        failed: counts.failed,
        nodes: if plan.is_some() { counts.nodes } else { record.steps.healthy },
        next: next_command(RolloutSituation {
            phase: &record.phase,
            at_once: record.at_once,
            waits_for_promotion: matches!(held_by, Some(Hold::Promotion { .. })),
            stable: back_to(fleet, record).as_ref(),
            failed: counts.failed,
            sent: record.steps.grants > 0 || record.at_once,
        }),
        held_by,
    })
}

/// Reason why a node does not progress in the rollout.
pub(crate) fn hold_of(
    reader: &Reader,
    agents: &Agents,
    fleet: &Fleet,
    plan: Option<&IndexedPlan>,
    node: &NodeName,
) -> Option<Hold> {
    let (record, _) = fleet.active_rollout_record()?;
    with_fleet_input(reader, agents, fleet, |input| hold_reason(plan?, record, input, node))
}

fn rolled_back_by(phase: &RolloutPhase) -> Option<RolloutId> {
    match phase {
        RolloutPhase::RolledBack { by, .. } => Some(*by),
        RolloutPhase::Running
        | RolloutPhase::Paused { .. }
        | RolloutPhase::Completed
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::Superseded { .. } => None,
    }
}

/// Next command for the operator, where one is needed.
fn next_command(situation: RolloutSituation<'_>) -> Option<String> {
    let needs_operator = match situation.phase {
        RolloutPhase::Running => situation.waits_for_promotion,
        RolloutPhase::Paused { .. } | RolloutPhase::Aborted { .. } => true,
        RolloutPhase::Completed | RolloutPhase::RolledBack { .. } | RolloutPhase::Superseded { .. } => false,
    };
    next_commands(situation).into_iter().next().map(|hint| hint.command).filter(|_| needs_operator)
}
