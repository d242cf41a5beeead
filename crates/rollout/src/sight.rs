//! What is decided on.

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::liveness::Link;
use muster_core::names::NodeName;

/// The environment, who is connected, and what time it is, for one decision.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    pub fleet: &'a Fleet,
    pub link: &'a dyn Fn(&NodeName) -> Link,
    /// An agent whose connection broke is looked for this long before its node counts as gone: servers are replaced, and
    /// networks hiccup. It is granted nothing meanwhile.
    pub patience: SignedDuration,
    pub now: Timestamp,
}

impl Sight<'_> {
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
        let early = Sight { fleet: &fleet, link: &link, patience, now: at(129) };
        assert!(!early.is_connected(&web));
        assert_eq!(early.gone_since(&web), None);
        assert_eq!(Sight { now: at(130), ..early }.gone_since(&web), Some(at(100)));
    }
}
