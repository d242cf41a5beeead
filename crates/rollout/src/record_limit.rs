//! Shrinks a rollout record that exceeds the size limit of a key. The rollout cannot continue with it, but its pause
//! must be written.

use muster_core::rollout::record::{FailedNode, GateVerdict, PauseReason, RolloutPhase, RolloutRecord, WaveState};
use muster_core::txn::MAX_VALUE;

/// The reason for the pause, with what to do.
pub(crate) fn problem(error: &str) -> String {
    let hint = "skip fewer nodes: end the rollout with `muster rollout abort`, or replace it with --supersede";
    format!("its next step cannot be written: {error}; {hint}")
}

/// Makes the record of a paused or ended rollout small enough to be written. First descriptions are dropped, then
/// pending requests. Skipped nodes stay. A running rollout needs all of its record, which is left unchanged.
pub(crate) fn fit(record: &mut RolloutRecord) {
    let leave_out: [fn(&mut RolloutRecord); 7] = [
        |record| record.waves.iter_mut().filter_map(|wave| wave.gate.as_mut()).for_each(shorten),
        |record| failed(&mut record.phase, |nodes| nodes.iter_mut().for_each(|node| node.error = None)),
        |record| record.waves.iter_mut().filter(|wave| wave.passed.is_some()).for_each(keep_times_only),
        |record| record.operator.command_ids.clear(),
        |record| {
            record.operator.retry.clear();
            record.operator.retry_before = None;
        },
        |record| failed(&mut record.phase, Vec::clear),
        |record| record.operator.released.clear(),
    ];
    for less in leave_out {
        if record.phase == RolloutPhase::Running || fits(record) {
            return;
        }
        less(record);
    }
}

fn fits(record: &RolloutRecord) -> bool {
    serde_json::to_vec(record).is_ok_and(|text| text.len() <= MAX_VALUE)
}

fn shorten(verdict: &mut GateVerdict) {
    match verdict {
        GateVerdict::Passed { .. } => {}
        GateVerdict::Failed { message, .. } | GateVerdict::Inconclusive { message, .. } => message.clear(),
    }
}

/// Reduces a passed wave to its start and end.
fn keep_times_only(wave: &mut WaveState) {
    *wave = WaveState { passed: wave.passed, ..WaveState::begun(wave.began) };
}

/// The failures that stopped a rollout.
fn failed(phase: &mut RolloutPhase, less: fn(&mut Vec<FailedNode>)) {
    let mut halt = match phase {
        RolloutPhase::Paused { why } | RolloutPhase::RolledBack { why, .. } => why,
        RolloutPhase::Running
        | RolloutPhase::Completed
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::Superseded { .. } => return,
    };
    loop {
        halt = match halt {
            PauseReason::Failures { nodes, .. } => return less(nodes),
            PauseReason::Operator { over: Some(why), .. } | PauseReason::NoRollbackTarget { why } => why,
            PauseReason::Operator { over: None, .. }
            | PauseReason::GateFailed { .. }
            | PauseReason::GateInconclusive { .. }
            | PauseReason::NoProgress { .. }
            | PauseReason::Blocked { .. } => return,
        };
    }
}
