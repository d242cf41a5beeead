//! Input of one rollout decision: the environment, its connections, the time, and for how long each revision of the store
//! has been observed by this replica.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::fleet::changes::{ChangePosition, ChangedNodes};
use muster_core::names::NodeName;
use muster_core::node::liveness::Link;
use muster_core::txn::Revision;

/// Operations, and guards, that every store takes in one transaction: etcd's default.
pub const MIN_OPS: usize = 128;

/// Grants of one transaction of a store that takes `max_ops` operations: each is an operation and a guard. The rest follows in
/// the next transaction, at once.
///
/// The other operations are for the record and its guards, the controller lock, and the records of the audit: one for about
/// forty grants.
pub fn max_grants(max_ops: usize) -> usize {
    (max_ops * 10 / 11).max(1)
}

/// Clocks that a time service keeps differ by less than this. Up to this difference, times in the store are trusted.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(2);

/// Inputs of one rollout decision.
#[derive(Clone, Copy)]
pub struct DecisionInput<'a> {
    pub fleet: &'a Fleet,
    pub link: &'a dyn Fn(&NodeName) -> Link,
    /// Nodes whose connection has changed since a position. Changes that follow from keys or from the time need not be named.
    pub link_changes: &'a dyn Fn(Option<&ChangePosition>) -> ChangedNodes,
    /// A node counts as disconnected only after its agent was away for this long, since replicas restart and networks
    /// fail for moments. It is granted nothing meanwhile.
    pub disconnect_grace: SignedDuration,
    /// Operations, and guards, that the store takes in one transaction.
    pub max_ops: usize,
    pub now: Timestamp,
    /// The time for which this replica has observed a revision, by a monotonic clock. None: trust the time in the store.
    /// See [`ObservationAge`](ObservationAge).
    pub observed_for: &'a dyn Fn(Revision) -> Option<SignedDuration>,
}

impl DecisionInput<'_> {
    /// The earliest time at which a state written at this revision can have lasted for `long`, whatever the times in
    /// the store say. Clocks of replicas differ, and one that has just started may not have set its clock yet.
    pub fn not_before(&self, at: Revision, long: SignedDuration) -> Option<Timestamp> {
        let known = (self.observed_for)(at)?;
        self.now.saturating_add(long.saturating_sub(known).saturating_sub(MAX_CLOCK_SKEW)).ok()
    }

    /// True if the agent of a node is connected now, or is one of cron that is expected to call.
    pub fn is_connected(&self, node: &NodeName) -> bool {
        (self.link)(node).is_live()
    }

    /// Since when a node has been disconnected, if for longer than the grace time.
    pub fn disconnected_since(&self, node: &NodeName) -> Option<Timestamp> {
        (self.link)(node).silent_since().filter(|since| self.now.duration_since(*since) >= self.disconnect_grace)
    }
}

impl std::fmt::Debug for DecisionInput<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecisionInput")
            .field("revision", &self.fleet.revision)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

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
    /// The time when the first revision of the last entry arrived.
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

    /// The time for which this replica has observed a revision. None: trust the time in the store.
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
    use muster_core::fleet::changes::ChangeLog;
    use muster_core::names::EnvName;

    use super::*;

    #[test]
    fn short_disconnection_is_tolerated() {
        let fleet = Fleet::new(EnvName::new("test").unwrap());
        let at = |second| Timestamp::from_second(second).unwrap();
        let link = |_: &NodeName| Link::Silent { since: at(100) };
        let disconnect_grace = SignedDuration::from_secs(30);
        let web = NodeName::new("web1").unwrap();
        let early = DecisionInput {
            fleet: &fleet,
            link: &link,
            link_changes: &|since| ChangeLog::default().read(since),
            disconnect_grace,
            max_ops: MIN_OPS,
            now: at(129),
            observed_for: &|_| None,
        };
        assert!(!early.is_connected(&web));
        assert_eq!(early.disconnected_since(&web), None);
        assert_eq!(DecisionInput { now: at(130), ..early }.disconnected_since(&web), Some(at(100)));
    }

    #[test]
    fn recently_observed_state_has_not_lasted_long() {
        let fleet = Fleet::new(EnvName::new("test").unwrap());
        let at = |second| Timestamp::from_second(second).unwrap();
        let link = |_: &NodeName| Link::Silent { since: at(0) };
        let observed_for = |revision: Revision| (revision.0 > 5).then_some(SignedDuration::from_secs(7));
        let input = DecisionInput {
            fleet: &fleet,
            link: &link,
            link_changes: &|since| ChangeLog::default().read(since),
            disconnect_grace: SignedDuration::ZERO,
            max_ops: MIN_OPS,
            now: at(1000),
            observed_for: &observed_for,
        };
        let minute = SignedDuration::from_mins(1);
        assert_eq!(input.not_before(Revision(5), minute), None);
        assert_eq!(input.not_before(Revision(6), minute), Some(at(1000 + 60 - 7 - 2)));
    }

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
