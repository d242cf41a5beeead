//! Evidence for the version that a node runs: decides whether its last passed validation counts now.
//!
//! A validation counts while the agent that made it is connected or, if cron starts it, has missed no two calls, on the machine that has run since, and nothing has failed
//! after it. `running_version` in the store keeps the last validated version of a node that does not count.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fleet::Node;
use crate::node::liveness::{self, Link};
use crate::report::record::ObservedRecord;

/// Reason why the version that a node validated last does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum NotCounted {
    /// Its agent is not connected.
    Unreachable {
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    /// Its agent is not connected, and the node was taken out of `active_roles`.
    Lost {
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    /// Its machine was restarted after the validation.
    Restarted,
    /// Its agent got a new incarnation after the validation.
    EarlierIncarnation,
    /// The store went back in time since its last report. The node may have run another version meanwhile.
    EarlierEpoch,
    /// A run or a validation has failed after the validation.
    Failed {
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
}

impl NotCounted {
    /// None if the last passed validation of the node counts. `epoch` is that of the store.
    pub fn of_node(node: &Node, epoch: u64, link: Link) -> Option<Self> {
        match link {
            Link::Silent { since } if liveness::may_be_active(node) && node.active().is_none() => {
                Some(NotCounted::Lost { since })
            }
            Link::Silent { since } => Some(NotCounted::Unreachable { since }),
            Link::Connected { .. } | Link::BetweenCalls { .. } => Self::of_record(&node.observed.as_ref()?.0, epoch),
        }
    }

    /// As [`Self::of_node`], for a node that is connected.
    pub fn of_record(observed: &ObservedRecord, epoch: u64) -> Option<Self> {
        if observed.rebooted {
            return Some(NotCounted::Restarted);
        }
        if observed.renewed {
            return Some(NotCounted::EarlierIncarnation);
        }
        if observed.last.as_ref().is_some_and(|last| last.generation.epoch < epoch) {
            return Some(NotCounted::EarlierEpoch);
        }
        observed.failing_since().map(|since| NotCounted::Failed { since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::record::ActiveRole;
    use crate::txn::Revision;

    fn node(observed: ObservedRecord, active: bool) -> Node {
        let version = crate::names::Version::new("v1").unwrap();
        let role = ActiveRole {
            role: crate::names::Role::new("web").unwrap(),
            interfaces: Default::default(),
            services: Default::default(),
        };
        let active = active.then(|| (version.clone(), (role, Revision(1)))).into_iter().collect();
        let observed = ObservedRecord { passed: Some(version.clone()), running: Some(version), ..observed };
        Node { observed: Some((observed, Revision(1))), active, ..Node::default() }
    }

    #[test]
    fn only_reachable_nodes_of_this_incarnation_count() {
        let since = Timestamp::from_second(100).unwrap();
        let (connected, silent) = (Link::Connected { since }, Link::Silent { since });
        let plain = ObservedRecord::default;
        let rebooted = || ObservedRecord { rebooted: true, ..plain() };
        let renewed = || ObservedRecord { renewed: true, ..plain() };
        let failed = || ObservedRecord { failed_since: Some(since), ..plain() };
        for (observed, active, link, expected) in [
            (plain(), true, connected, None),
            (plain(), true, silent, Some(NotCounted::Unreachable { since })),
            (plain(), false, silent, Some(NotCounted::Lost { since })),
            (rebooted(), false, connected, Some(NotCounted::Restarted)),
            // A restarted machine left `active_roles` because of its restart.
            (rebooted(), false, silent, Some(NotCounted::Unreachable { since })),
            (renewed(), true, connected, Some(NotCounted::EarlierIncarnation)),
            (failed(), true, connected, Some(NotCounted::Failed { since })),
        ] {
            let shown = format!("{observed:?} {active} {link:?}");
            assert_eq!(NotCounted::of_node(&node(observed, active), 0, link), expected, "{shown}");
        }
    }
}
