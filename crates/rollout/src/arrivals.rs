//! When a server learnt of what is in the store, by a clock of its own that never jumps.
//!
//! Times in the store are those of whichever server wrote them, and clocks differ. Whether something has lasted long enough is
//! therefore asked twice: by its time, and by how long the server that decides has known of it.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::SignedDuration;
use muster_core::txn::Revision;

/// What arrives within this counts as having arrived together, at its end.
const GRAIN: Duration = Duration::from_millis(100);
/// So many are remembered: half an hour of a fleet that never rests, and days of one that does. What is older counts as having
/// arrived with the oldest of them.
const REMEMBERED: usize = 16_384;

/// Which revisions a server has seen, and since when.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// Up to which revision, and when the last of those arrived.
    log: VecDeque<(Revision, Duration)>,
    /// When the first of the last entry did.
    open: Duration,
    /// What is taken at its word: it was there when this server started, and nobody else can have written it.
    own: Option<Revision>,
}

impl Arrivals {
    /// Everything up to a revision is there. Times are counted from any moment that stays the same.
    pub fn note(&mut self, revision: Revision, at: Duration) {
        match self.log.back_mut() {
            Some((last, _)) if *last == revision => return,
            // The store was put back to an earlier state.
            Some((last, _)) if *last > revision => self.log.clear(),
            Some(entry) if at.saturating_sub(self.open) < GRAIN => {
                *entry = (revision, at);
                return;
            }
            Some(_) | None => {}
        }
        if self.log.len() >= REMEMBERED {
            self.log.pop_front();
        }
        self.log.push_back((revision, at));
        self.open = at;
    }

    /// What has arrived so far was written by this server's own clock: the store is nobody else's.
    pub fn trust_all(&mut self) {
        self.own = self.log.back().map(|(revision, _)| *revision);
    }

    /// For how long this server has known what was written at a revision. None: its time is to be believed.
    pub fn known_for(&self, revision: Revision, now: Duration) -> Option<SignedDuration> {
        if self.own.is_some_and(|own| revision <= own) {
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

    fn known(arrivals: &Arrivals, revision: u64, now: u64) -> Option<i64> {
        arrivals.known_for(Revision(revision), seconds(now)).map(|age| age.as_secs())
    }

    #[test]
    fn what_was_there_at_the_start_is_known_since_then_unless_nobody_else_can_have_written_it() {
        let mut arrivals = Arrivals::default();
        arrivals.note(Revision(100), seconds(5));
        arrivals.note(Revision(101), seconds(20));
        assert_eq!(
            (known(&arrivals, 3, 65), known(&arrivals, 100, 65), known(&arrivals, 101, 65)),
            (Some(60), Some(60), Some(45))
        );
        assert_eq!(known(&arrivals, 102, 65), Some(0), "it has yet to arrive");

        let mut alone = Arrivals::default();
        alone.note(Revision(100), seconds(5));
        alone.trust_all();
        alone.note(Revision(101), seconds(20));
        assert_eq!((known(&alone, 100, 65), known(&alone, 101, 65)), (None, Some(45)));
    }

    #[test]
    fn what_arrives_together_is_never_known_for_too_long() {
        let mut arrivals = Arrivals::default();
        for number in 0..5_000_u64 {
            arrivals.note(Revision(number), Duration::from_millis(7 * number));
        }
        let now = Duration::from_secs(60);
        for number in 0..5_000_u64 {
            let arrived = Duration::from_millis(7 * number);
            let known = Duration::try_from(arrivals.known_for(Revision(number), now).unwrap()).unwrap();
            assert!(known <= now - arrived && known + GRAIN >= now - arrived, "{number}: {known:?}");
        }
        assert!(arrivals.log.len() < 500, "{}", arrivals.log.len());
    }

    #[test]
    fn a_store_that_was_put_back_begins_anew_and_memory_is_bounded() {
        let mut arrivals = Arrivals::default();
        arrivals.note(Revision(100), seconds(5));
        arrivals.note(Revision(40), seconds(50));
        assert_eq!(known(&arrivals, 30, 60), Some(10));
        for number in 0..50_000 {
            arrivals.note(Revision(100 + number), seconds(100 + number));
        }
        assert!(arrivals.log.len() <= REMEMBERED);
        let known = arrivals.known_for(Revision(100), seconds(100_000)).unwrap();
        assert!(known < SignedDuration::from_secs(99_900), "older than what is remembered counts for less: {known}");
    }
}
