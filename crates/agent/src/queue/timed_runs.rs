//! Times of the runs that find drift.
//!
//! The times of a node are one interval apart. Where they lie within the interval follows from the node's name: the runs of
//! a fleet whose agents start together, or whose nodes are updated together, are spread evenly. They are times of the
//! clock that never jumps. A time that finds the node paused, failed, or not at its desired version is skipped, and not made
//! up for: the end of a pause would otherwise start the runs of all its nodes at once.

use std::time::Duration;

use muster_core::lookup;
use muster_core::names::{EnvName, NodeName};
use muster_core::release::timed_runs::DriftPolicy;
use muster_core::report::Cause;
use tokio::time::Instant;

use crate::queue::schedule::{LedgerView, Schedule, merge};
use crate::state::ledger::LedgerRunEnd;

/// Position of a node's timed runs within the interval, from 0 up to 1.
pub fn phase(env: &EnvName, node: &NodeName) -> f64 {
    let high = u32::try_from(lookup::hash(&["timed runs", env.as_str(), node.as_str()]) >> 32).unwrap_or_default();
    f64::from(high) / (f64::from(u32::MAX) + 1.0)
}

/// The first time of a node's timed runs that is not before `earliest`. The first interval begins at `begin`.
fn next_time(begin: Instant, every: Duration, phase: f64, earliest: Instant) -> Instant {
    let first = begin + every.mul_f64(phase);
    let behind = earliest.saturating_duration_since(first).as_nanos();
    let intervals = behind.div_ceil(every.as_nanos().max(1));
    first + every * u32::try_from(intervals).unwrap_or(u32::MAX)
}

impl LedgerView<'_> {
    /// True if the node has validated its desired state. Before that, it makes the runs that lead there.
    fn is_validated(&self) -> bool {
        let (Some(desired), Some(last), Some(applied)) = (self.desired, self.last, self.applied) else { return false };
        !self.unconfirmed
            && last.end == LedgerRunEnd::Validated
            && last.generation == desired.generation
            && applied.desired.generation == desired.generation
            && applied.desired.version == desired.version
    }
}

impl Schedule {
    /// Sets the time of the next timed run. A run was made just now, or is skipped: the next one is at least half an
    /// interval later.
    pub(super) fn schedule_timed(&mut self, view: LedgerView<'_>, now: Instant, phase: f64) {
        let every = view.applied.and_then(|applied| Duration::try_from(applied.run_every?).ok());
        self.timed_due = every.map(|every| next_time(*self.begin.get_or_insert(now), every, phase, now + every / 2));
    }

    /// Adds the cause of a timed run, or of a timed preview, whose time has come. Work in progress delays it.
    pub(super) fn add_timed(&mut self, view: LedgerView<'_>, now: Instant, phase: f64) {
        if self.running.is_some() || self.timed_due.is_none_or(|due| now < due) {
            return;
        }
        if view.is_validated() && view.paused.is_none() && self.waiting.is_empty() {
            match view.applied.map(|applied| applied.drift).unwrap_or_default() {
                DriftPolicy::Repair => self.add(Cause::Schedule, now),
                DriftPolicy::Report => {
                    merge(&mut self.previews, Cause::Schedule);
                    self.preview_due = Some(now);
                }
            }
        }
        self.schedule_timed(view, now, phase);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(1800);

    #[test]
    fn times_are_one_interval_apart() {
        let begin = Instant::now();
        let first = begin + EVERY.mul_f64(0.25);
        for (earliest, intervals) in
            [(begin, 0), (first, 0), (first + Duration::from_nanos(1), 1), (first + EVERY * 7, 7)]
        {
            assert_eq!(next_time(begin, EVERY, 0.25, earliest), first + EVERY * intervals);
        }
    }

    #[test]
    fn phases_are_spread_evenly() {
        let env = EnvName::new("prod").unwrap();
        let mut tenths = [0_u32; 10];
        for number in 0..10_000 {
            let phase = phase(&env, &NodeName::new(format!("web{number}")).unwrap());
            assert!((0.0..1.0).contains(&phase));
            let tenth = (0..10).rfind(|tenth| phase >= f64::from(*tenth) / 10.0).unwrap();
            tenths[usize::try_from(tenth).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|nodes| (850..1150).contains(nodes)), "{tenths:?}");
        let node = NodeName::new("web1").unwrap();
        assert_ne!(phase(&env, &node), phase(&EnvName::new("staging").unwrap(), &node));
    }
}
