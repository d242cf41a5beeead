//! How one wave ends and the next begins.

use jiff::Timestamp;
use muster_core::rollout::record::{GateVerdict, PauseReason, RolloutRecord, WaveState};
use muster_core::rollout::strategy::Promote;

use crate::health::later;

use super::{Indexed, Survey};

/// What the wave that goes on waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    ForNodes,
    /// Its nodes are done, and are watched.
    ForSoak {
        until: Timestamp,
    },
    /// By its place in the plan, from 0.
    ForChecks {
        wave: usize,
    },
    ForPromotion,
    /// The checks said no.
    Failed {
        why: PauseReason,
    },
    /// The checks could not say.
    Unclear {
        why: PauseReason,
    },
    /// All waves have passed, and everybody is done.
    ForNothing,
}

/// Moves on through the waves as far as that is possible now, and says what comes in the way.
pub(crate) fn move_on(plan: &Indexed, record: &mut RolloutRecord, survey: &Survey<'_>, now: Timestamp) -> Waits {
    let waves = plan.plan().waves.len();
    loop {
        let Some(wave) = record.waves.len().checked_sub(1).filter(|_| waves > 0) else {
            return if waves == 0 { Waits::ForNothing } else { begin(record, now) };
        };
        let is_done = survey.is_done(wave);
        let Some(state) = record.waves.last_mut() else { return Waits::ForNodes };
        if state.passed.is_some() {
            if wave + 1 < waves {
                record.waves.push(WaveState::begun(now));
                continue;
            }
            return if survey.is_all_done() { Waits::ForNothing } else { Waits::ForNodes };
        }
        let settled = match (state.settled, is_done) {
            (None, false) => return Waits::ForNodes,
            (Some(_), false) => {
                // Somebody is no longer well, or has joined: the wave is watched anew once it is whole again.
                *state = WaveState { settled: None, gate: None, promoted: None, ..state.clone() };
                record.progress = now;
                return Waits::ForNodes;
            }
            (Some(settled), true) => match survey.last_healthy_in(wave).filter(|since| *since > settled) {
                None => settled,
                // It was paused, and nobody saw that one of them was not well, or was not yet: it is watched from then on.
                Some(since) => {
                    *state = WaveState { settled: Some(since), gate: None, promoted: None, ..state.clone() };
                    record.progress = now;
                    since
                }
            },
            (None, true) => {
                state.settled = Some(now);
                record.progress = now;
                now
            }
        };
        let Some(planned) = plan.plan().waves.get(wave) else { return Waits::ForNodes };
        let until = later(settled, planned.soak);
        // That is another server's time, perhaps: nobody goes on who has not seen it for as long.
        let until = survey.last_seen_in(wave).map_or(until, |seen| until.max(later(seen, planned.soak)));
        if now < until {
            return Waits::ForSoak { until };
        }
        if state.promoted.is_none() {
            match &state.gate {
                None if plan.plan().strategy.gate.checks.is_empty() => {
                    state.gate = Some(GateVerdict::Passed { at: now });
                }
                None => return Waits::ForChecks { wave },
                Some(GateVerdict::Passed { .. }) => {}
                Some(GateVerdict::Failed { check, message, .. }) => {
                    let (check, message) = (check.clone(), message.clone());
                    return Waits::Failed { why: PauseReason::GateFailed { check, message } };
                }
                Some(GateVerdict::Inconclusive { check, message, .. }) => {
                    let (check, message) = (check.clone(), message.clone());
                    return Waits::Unclear { why: PauseReason::GateInconclusive { check, message } };
                }
            }
            // After the last wave there is nothing to let begin.
            if planned.promote == Promote::Manual && !record.full && wave + 1 < waves {
                return Waits::ForPromotion;
            }
        }
        state.passed = Some(now);
        record.progress = now;
    }
}

fn begin(record: &mut RolloutRecord, now: Timestamp) -> Waits {
    record.waves.push(WaveState::begun(now));
    Waits::ForNodes
}
