//! Input of one rollout decision: the environment, its connections, and the time.

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::names::NodeName;
use muster_core::node::liveness::Link;
use muster_core::txn::Revision;

/// Clocks that a time service keeps differ by less than this. Up to this difference, times in the store are trusted.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(2);

/// Inputs of one rollout decision.
#[derive(Clone, Copy)]
pub struct DecisionInput<'a> {
    pub fleet: &'a Fleet,
    pub link: &'a dyn Fn(&NodeName) -> Link,
    /// A node counts as disconnected only after its agent was away for this long, since replicas restart and networks
    /// fail for moments. It is granted nothing meanwhile.
    pub disconnect_grace: SignedDuration,
    pub now: Timestamp,
    /// How long this replica has observed what was written at a revision, by a monotonic clock. None: trust the time in
    /// the store. See [`ObservationAge`](crate::observation_age::ObservationAge).
    pub observed_for: &'a dyn Fn(Revision) -> Option<SignedDuration>,
}

impl DecisionInput<'_> {
    /// The earliest time at which a state written at this revision can have lasted for `long`, whatever the times in
    /// the store say. Clocks of replicas differ, and one that has just started may not have set its clock yet.
    pub fn not_before(&self, at: Revision, long: SignedDuration) -> Option<Timestamp> {
        let known = (self.observed_for)(at)?;
        self.now.saturating_add(long.saturating_sub(known).saturating_sub(MAX_CLOCK_SKEW)).ok()
    }

    /// Whether the agent of a node is connected now.
    pub fn is_connected(&self, node: &NodeName) -> bool {
        matches!((self.link)(node), Link::Connected { .. })
    }

    /// Since when a node has been disconnected, if for longer than the grace time.
    pub fn disconnected_since(&self, node: &NodeName) -> Option<Timestamp> {
        match (self.link)(node) {
            Link::Connected { .. } => None,
            Link::Silent { since } => (self.now.duration_since(since) >= self.disconnect_grace).then_some(since),
        }
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

#[cfg(test)]
mod tests {
    use muster_core::names::EnvName;

    use super::*;

    #[test]
    fn short_disconnection_is_tolerated() {
        let fleet = Fleet::new(EnvName::new("test").unwrap());
        let at = |second| Timestamp::from_second(second).unwrap();
        let link = |_: &NodeName| Link::Silent { since: at(100) };
        let disconnect_grace = SignedDuration::from_secs(30);
        let web = NodeName::new("web1").unwrap();
        let early =
            DecisionInput { fleet: &fleet, link: &link, disconnect_grace, now: at(129), observed_for: &|_| None };
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
            disconnect_grace: SignedDuration::ZERO,
            now: at(1000),
            observed_for: &observed_for,
        };
        let minute = SignedDuration::from_mins(1);
        assert_eq!(input.not_before(Revision(5), minute), None);
        assert_eq!(input.not_before(Revision(6), minute), Some(at(1000 + 60 - 7 - 2)));
    }
}
