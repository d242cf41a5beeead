//! Says what was done with a rollout, and why.

use muster_core::names::{EnvName, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{GateVerdict, Halt, Phase, RolloutRecord};
use muster_rollout::step::Change;

/// What a step has changed.
pub(super) fn change(env: &EnvName, before: &RolloutRecord, change: &Change) {
    let (now, rollout) = (&change.record, change.record.id);
    for (number, wave) in now.waves.iter().enumerate() {
        let (old, number) = (before.waves.get(number), number + 1);
        let is_new = |then: fn(&muster_core::rollout::record::WaveState) -> bool| then(wave) && !old.is_some_and(then);
        if old.is_none() {
            tracing::info!(%env, %rollout, "wave {number} begins");
        }
        if is_new(|wave| wave.settled.is_some()) {
            tracing::info!(%env, %rollout, "all nodes of wave {number} are done; it is watched");
        }
        if old.is_some_and(|old| old.settled.is_some()) && wave.settled.is_none() {
            tracing::info!(%env, %rollout, "not all nodes of wave {number} are well any more");
        }
        if is_new(|wave| wave.gate.is_some()) {
            match &wave.gate {
                Some(GateVerdict::Passed { .. }) => tracing::info!(%env, %rollout, "the gate of wave {number} passed"),
                Some(GateVerdict::Failed { check, message, .. }) => {
                    tracing::warn!(%env, %rollout, check, message, "the gate of wave {number} failed");
                }
                Some(GateVerdict::Inconclusive { check, message, .. }) => {
                    tracing::warn!(%env, %rollout, check, message, "the gate of wave {number} could not say");
                }
                None => {}
            }
        }
        if is_new(|wave| wave.passed.is_some()) {
            tracing::info!(%env, %rollout, "wave {number} has passed");
        }
    }
    match change.grants.as_slice() {
        [] => {}
        [grant] => tracing::info!(%env, %rollout, node = %grant.node, to = %now.to, "granted"),
        many => {
            let nodes: Vec<&str> = many.iter().map(|grant| grant.node.as_str()).collect();
            tracing::info!(%env, %rollout, to = %now.to, nodes = nodes.join(" "), "granted to {} nodes", many.len());
        }
    }
    if now.phase != before.phase {
        match &now.phase {
            Phase::Completed => tracing::info!(%env, %rollout, to = %now.to, "completed"),
            Phase::Paused { why } => tracing::warn!(%env, %rollout, %why, "stopped, until somebody looks at it"),
            Phase::Running | Phase::Aborted { .. } | Phase::RolledBack { .. } | Phase::Superseded { .. } => {
                tracing::info!(%env, %rollout, "{}", now.phase.word());
            }
        }
    }
}

/// A rollout has failed, and another one goes back from it.
pub(super) fn goes_back(env: &EnvName, from: RolloutId, rollout: RolloutId, to: &Version, why: &Halt) {
    tracing::warn!(%env, %rollout, %to, %why, "goes back from rollout {from}");
}
