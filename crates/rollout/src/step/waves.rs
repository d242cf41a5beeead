//! Ends a wave and starts the next one: soak, gate and promotion.

use jiff::Timestamp;
use muster_core::rollout::progress::Hold;
use muster_core::rollout::record::{GateVerdict, PauseReason, RolloutRecord, WaveState};
use muster_core::rollout::strategy::Promote;

use crate::health::later;

use super::{IndexedPlan, Survey};

/// Result of advancing through the waves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaveAdvance {
    /// The current wave waits for its nodes.
    InProgress,
    /// The nodes of the current wave are done. It waits for its soak time, its gate or its promotion.
    Held(Hold),
    /// A check of the gate failed.
    GateFailed(PauseReason),
    /// A check of the gate had no result.
    GateInconclusive(PauseReason),
    /// All waves have passed, and no node is in progress.
    Complete,
}

/// Advances the waves as far as possible now. Returns what the rollout waits for.
pub(crate) fn advance_waves(
    plan: &IndexedPlan,
    record: &mut RolloutRecord,
    survey: &Survey,
    now: Timestamp,
) -> WaveAdvance {
    let waves = plan.plan().waves.len();
    loop {
        let Some(wave) = record.waves.len().checked_sub(1).filter(|_| waves > 0) else {
            return if waves == 0 { WaveAdvance::Complete } else { begin(record, now) };
        };
        let is_done = survey.is_done(wave);
        let Some(state) = record.waves.last_mut() else { return WaveAdvance::InProgress };
        if state.passed.is_some() {
            if wave + 1 < waves {
                record.waves.push(WaveState::begun(now));
                continue;
            }
            return if survey.is_all_done() { WaveAdvance::Complete } else { WaveAdvance::InProgress };
        }
        let settled = match (state.settled, is_done) {
            (None, false) => return WaveAdvance::InProgress,
            (Some(_), false) => {
                // A node is no longer healthy, or has joined: the soak starts again once all nodes are done.
                *state = WaveState { settled: None, gate: None, promoted: None, ..state.clone() };
                record.steps.progress = now;
                return WaveAdvance::InProgress;
            }
            (Some(settled), true) => match survey.last_healthy_in(wave).filter(|since| *since > settled) {
                None => settled,
                // While the rollout was paused a node became healthy later than recorded: the soak starts at that time.
                Some(since) => {
                    *state = WaveState { settled: Some(since), gate: None, promoted: None, ..state.clone() };
                    record.steps.progress = now;
                    since
                }
            },
            (None, true) => {
                state.settled = Some(now);
                record.steps.progress = now;
                now
            }
        };
        let Some(planned) = plan.plan().waves.get(wave) else { return WaveAdvance::InProgress };
        let soaked = later(settled, planned.soak);
        // The settled time may be from another replica's clock: this replica must have observed the wave for the whole
        // soak.
        let until = survey.last_observed_in(wave).map_or(soaked, |seen| soaked.max(later(seen, planned.soak)));
        if now < until {
            return WaveAdvance::Held(Hold::Soak { until });
        }
        if state.promoted.is_none() {
            match &state.gate {
                None if plan.plan().strategy.gate.checks.is_empty() => {
                    state.gate = Some(GateVerdict::Passed { at: now });
                }
                None => return WaveAdvance::Held(Hold::Gate { since: soaked }),
                Some(GateVerdict::Passed { .. }) => {}
                Some(GateVerdict::Failed { check, message, .. }) => {
                    let (check, message) = (check.clone(), message.clone());
                    return WaveAdvance::GateFailed(PauseReason::GateFailed { check, message });
                }
                Some(GateVerdict::Inconclusive { check, message, .. }) => {
                    let (check, message) = (check.clone(), message.clone());
                    return WaveAdvance::GateInconclusive(PauseReason::GateInconclusive { check, message });
                }
            }
            // No wave follows the last one.
            if planned.promote == Promote::Manual && !record.operator.promotes_all && wave + 1 < waves {
                return WaveAdvance::Held(Hold::Promotion { stage: planned.stage, wave: planned.wave });
            }
        }
        state.passed = Some(now);
        record.steps.progress = now;
    }
}

fn begin(record: &mut RolloutRecord, now: Timestamp) -> WaveAdvance {
    record.waves.push(WaveState::begun(now));
    WaveAdvance::InProgress
}
