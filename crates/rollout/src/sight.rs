//! What is decided on.

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::names::NodeName;
use muster_core::node::liveness::Link;
use muster_core::txn::Revision;

/// Clocks that a time service sets are closer than this: up to that, times in the store count as they are.
const CLOCKS_AGREE: SignedDuration = SignedDuration::from_secs(2);

/// The environment, who is connected, and what time it is, for one decision.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    pub fleet: &'a Fleet,
    pub link: &'a dyn Fn(&NodeName) -> Link,
    /// An agent whose connection broke is looked for this long before its node counts as gone: servers are replaced, and
    /// networks hiccup. It is granted nothing meanwhile.
    pub patience: SignedDuration,
    pub now: Timestamp,
    /// For how long whoever decides has known what was written at a revision, by a clock that never jumps. None: the time that
    /// stands there is to be believed. See [`Arrivals`](crate::arrivals::Arrivals).
    pub known_for: &'a dyn Fn(Revision) -> Option<SignedDuration>,
}

impl Sight<'_> {
    /// Before when something that was written at a revision cannot have lasted for so long, whatever the times say that stand in
    /// the store: servers' clocks differ, and a server that has just been started may not have set its own yet.
    pub fn not_before(&self, at: Revision, long: SignedDuration) -> Option<Timestamp> {
        let known = (self.known_for)(at)?;
        self.now.saturating_add(long.saturating_sub(known).saturating_sub(CLOCKS_AGREE)).ok()
    }

    /// Whether the agent of a node can be told something now.
    pub fn is_connected(&self, node: &NodeName) -> bool {
        matches!((self.link)(node), Link::Connected { .. })
    }

    /// Since when a node is gone for longer than a hiccup.
    pub fn gone_since(&self, node: &NodeName) -> Option<Timestamp> {
        match (self.link)(node) {
            Link::Connected { .. } => None,
            Link::Silent { since } => (self.now.duration_since(since) >= self.patience).then_some(since),
        }
    }
}

impl std::fmt::Debug for Sight<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sight").field("revision", &self.fleet.revision).field("now", &self.now).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use muster_core::names::EnvName;

    use super::*;

    #[test]
    fn a_hiccup_is_no_departure() {
        let fleet = Fleet::new(EnvName::new("test").unwrap());
        let at = |second| Timestamp::from_second(second).unwrap();
        let link = |_: &NodeName| Link::Silent { since: at(100) };
        let patience = SignedDuration::from_secs(30);
        let web = NodeName::new("web1").unwrap();
        let early = Sight { fleet: &fleet, link: &link, patience, now: at(129), known_for: &|_| None };
        assert!(!early.is_connected(&web));
        assert_eq!(early.gone_since(&web), None);
        assert_eq!(Sight { now: at(130), ..early }.gone_since(&web), Some(at(100)));
    }

    #[test]
    fn what_is_known_for_a_short_time_has_not_lasted_long() {
        let fleet = Fleet::new(EnvName::new("test").unwrap());
        let at = |second| Timestamp::from_second(second).unwrap();
        let link = |_: &NodeName| Link::Silent { since: at(0) };
        let known_for = |revision: Revision| (revision.0 > 5).then_some(SignedDuration::from_secs(7));
        let sight =
            Sight { fleet: &fleet, link: &link, patience: SignedDuration::ZERO, now: at(1000), known_for: &known_for };
        let minute = SignedDuration::from_mins(1);
        assert_eq!(sight.not_before(Revision(5), minute), None);
        assert_eq!(sight.not_before(Revision(6), minute), Some(at(1000 + 60 - 7 - 2)));
    }
}
