//! Times for which a replica has observed each store revision, by its trusted monotonic clock.
//!
//! Times in the store are from the clock of the replica that wrote them, and clocks differ. A duration is therefore
//! checked twice: by the times in the store, and by how long the deciding replica has observed the state.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::SignedDuration;
use muster_core::txn::Revision;

/// Revisions that arrive within this time count as one, at its end.
const RESOLUTION: Duration = Duration::from_millis(100);
/// Entries that are kept: half an hour of a fleet that changes all the time, days of an idle one. Older revisions count
/// as having arrived with the oldest entry.
const MAX_ENTRIES: usize = 16_384;

/// The arrival times of store revisions.
#[derive(Clone, Debug, Default)]
pub struct ObservationAge {
    /// A revision, and when the last revision up to it arrived.
    log: VecDeque<(Revision, Duration)>,
    /// When the first revision of the last entry arrived.
    entry_began: Duration,
    /// Revisions up to this one are trusted: they were there at the start, and no other replica can have written them.
    trusted: Option<Revision>,
}

impl ObservationAge {
    /// All revisions up to this one have arrived. Times count from any fixed moment.
    pub fn record(&mut self, revision: Revision, at: Duration) {
        match self.log.back_mut() {
            Some((last, _)) if *last == revision => return,
            // The store was reset to an earlier state.
            Some((last, _)) if *last > revision => self.log.clear(),
            Some(entry) if at.saturating_sub(self.entry_began) < RESOLUTION => {
                *entry = (revision, at);
                return;
            }
            Some(_) | None => {}
        }
        if self.log.len() >= MAX_ENTRIES {
            self.log.pop_front();
        }
        self.log.push_back((revision, at));
        self.entry_began = at;
    }

    /// Trusts the times of all revisions so far: this replica is the only writer of the store.
    pub fn trust_all(&mut self) {
        self.trusted = self.log.back().map(|(revision, _)| *revision);
    }

    /// How long this replica has observed a revision. None: trust the time in the store.
    pub fn age_of(&self, revision: Revision, now: Duration) -> Option<SignedDuration> {
        if self.trusted.is_some_and(|trusted| revision <= trusted) {
            return None;
        }
        let place = self.log.partition_point(|(upto, _)| *upto < revision);
        let arrived = self.log.get(place).map_or(now, |(_, at)| *at);
        SignedDuration::try_from(now.saturating_sub(arrived)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn known(arrivals: &ObservationAge, revision: u64, now: u64) -> Option<i64> {
        arrivals.age_of(Revision(revision), seconds(now)).map(|age| age.as_secs())
    }

    #[test]
    fn ages_count_from_start_unless_trusted() {
        let mut arrivals = ObservationAge::default();
        arrivals.record(Revision(100), seconds(5));
        arrivals.record(Revision(101), seconds(20));
        assert_eq!(
            (known(&arrivals, 3, 65), known(&arrivals, 100, 65), known(&arrivals, 101, 65)),
            (Some(60), Some(60), Some(45))
        );
        assert_eq!(known(&arrivals, 102, 65), Some(0), "it has yet to arrive");

        let mut alone = ObservationAge::default();
        alone.record(Revision(100), seconds(5));
        alone.trust_all();
        alone.record(Revision(101), seconds(20));
        assert_eq!((known(&alone, 100, 65), known(&alone, 101, 65)), (None, Some(45)));
    }

    #[test]
    fn age_is_never_overestimated() {
        let mut arrivals = ObservationAge::default();
        for number in 0..5_000_u64 {
            arrivals.record(Revision(number), Duration::from_millis(7 * number));
        }
        let now = Duration::from_secs(60);
        for number in 0..5_000_u64 {
            let arrived = Duration::from_millis(7 * number);
            let known = Duration::try_from(arrivals.age_of(Revision(number), now).unwrap()).unwrap();
            assert!(known <= now - arrived && known + RESOLUTION >= now - arrived, "{number}: {known:?}");
        }
        assert!(arrivals.log.len() < 500, "{}", arrivals.log.len());
    }

    #[test]
    fn reset_store_clears_the_log_and_memory_is_bounded() {
        let mut arrivals = ObservationAge::default();
        arrivals.record(Revision(100), seconds(5));
        arrivals.record(Revision(40), seconds(50));
        assert_eq!(known(&arrivals, 30, 60), Some(10));
        for number in 0..50_000 {
            arrivals.record(Revision(100 + number), seconds(100 + number));
        }
        assert!(arrivals.log.len() <= MAX_ENTRIES);
        let known = arrivals.age_of(Revision(100), seconds(100_000)).unwrap();
        assert!(known < SignedDuration::from_secs(99_900), "older than what is remembered counts for less: {known}");
    }
}
