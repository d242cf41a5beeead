//! Says what was done with a rollout, and why.

use muster_core::names::EnvName;
use muster_core::rollout::record::{GateVerdict, Phase, RolloutRecord, WaveState};
use muster_rollout::executor::Written;
use muster_rollout::step::Change;

/// It was written.
pub(super) fn written(env: &EnvName, what: &Written) {
    match what {
        Written::Step { before, change } => tell(env, before, change),
        Written::Back { from, rollout, to, why } => {
            tracing::warn!(%env, %rollout, %to, %why, "goes back from rollout {from}");
        }
        Written::Outcome { rollout } => tracing::debug!(%env, %rollout, "what became of it is kept"),
    }
}

/// It was not.
pub(super) fn failed(what: &Written) -> &'static str {
    match what {
        Written::Step { change, .. } if matches!(change.record.phase, Phase::Paused { .. }) => {
            "a rollout cannot be paused"
        }
        Written::Step { .. } => "a step of a rollout cannot be written",
        Written::Back { .. } => "the way back from a rollout cannot be begun",
        Written::Outcome { .. } => "what became of a rollout cannot be written",
    }
}

/// What a step has changed.
fn tell(env: &EnvName, before: &RolloutRecord, change: &Change) {
    let (now, rollout) = (&change.record, change.record.id);
    for (number, wave) in now.waves.iter().enumerate() {
        let (old, number) = (before.waves.get(number), number + 1);
        let is_new = |then: fn(&WaveState) -> bool| then(wave) && !old.is_some_and(then);
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
