//! Liveness: decides which silent nodes are lost, and takes them out of service.
//!
//! A node without a connection is silent. After a timeout it is lost and leaves `active_roles`. No node is declared
//! lost in two cases: during the grace period after the server started, when agents have not had time to reconnect; and
//! when more than half of the live nodes of a failure domain are silent at once, which points to the network or the
//! servers.
//!
//! A node whose agent is started by cron is silent only after two missed calls. Before that it is live.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fleet::{Fleet, Node};
use crate::keys::Keys;
use crate::names::NodeName;
use crate::node::agent::CallInterval;
use crate::report::record::ActiveRole;
use crate::txn::{Guard, Op, Txn};

/// Timeouts of liveness decisions.
#[derive(Clone, Copy, Debug)]
pub struct LivenessTimeouts {
    /// A node that is silent for this long is lost.
    pub lost_after: SignedDuration,
    /// No node is lost within this time after the server started to listen.
    pub grace: SignedDuration,
}

impl Default for LivenessTimeouts {
    /// Agents detect a dead connection after two missed pings (20 s) and reconnect within 5 s. A node that needs more
    /// than 30 s has more than a short interruption. The grace period is twice that: agents have backed off when a
    /// server starts.
    fn default() -> Self {
        Self { lost_after: SignedDuration::from_secs(30), grace: SignedDuration::from_secs(60) }
    }
}

/// Connection of a node's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Link {
    Connected {
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    /// Not connected, since the connection ended, the server started or the node was registered.
    Silent {
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    /// Cron starts its agent, which is not connected now and has missed no two calls.
    BetweenCalls {
        /// End of the last call.
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
        every: CallInterval,
        /// Time of the next call.
        #[schema(value_type = String, format = DateTime)]
        due: Timestamp,
        /// The node is silent if it has not called until then.
        #[schema(value_type = String, format = DateTime)]
        until: Timestamp,
    },
}

impl Link {
    /// Link of a node without a connection since then. An agent of cron is expected until it has missed two calls while a
    /// server listened.
    pub fn without_connection(
        since: Timestamp,
        every: Option<CallInterval>,
        listening: Timestamp,
        now: Timestamp,
    ) -> Self {
        let Some(every) = every else { return Link::Silent { since } };
        let from = since.max(listening);
        let (due, until) = (every.next_call(from), every.expected_until(from));
        if now < until { Link::BetweenCalls { since, every, due, until } } else { Link::Silent { since } }
    }

    /// Since when the node is silent.
    pub fn silent_since(self) -> Option<Timestamp> {
        match self {
            Link::Silent { since } => Some(since),
            Link::Connected { .. } | Link::BetweenCalls { .. } => None,
        }
    }

    /// True if the agent is connected now, or is one of cron that is expected to call.
    pub fn is_live(self) -> bool {
        self.silent_since().is_none()
    }
}

/// Facts about one node.
#[derive(Clone, Copy, Debug)]
pub struct LivenessInput<'a> {
    pub node: &'a NodeName,
    pub failure_domain: &'a str,
    pub link: Link,
    /// The last validation passed and the node is in service. It is active while it is live.
    pub may_be_active: bool,
    /// The node is in `active_roles`.
    pub active: bool,
}

/// Nodes to withdraw and restore, and the time of the next check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LivenessDecision {
    /// Lost nodes, to be removed from `active_roles`.
    pub withdraw: Vec<NodeName>,
    /// Nodes that are back, to be added to `active_roles`.
    pub restore: Vec<NodeName>,
    /// Failure domains with too many silent nodes to blame the nodes.
    pub held: Vec<SilentDomain>,
    /// Nothing changes before this time unless a connection begins or ends.
    pub recheck: Option<Timestamp>,
}

/// A failure domain in which no node is declared lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SilentDomain {
    pub failure_domain: String,
    pub silent: usize,
    pub nodes: usize,
}

/// Decides which nodes are lost and which are back.
pub fn decide<'a>(
    seen: impl IntoIterator<Item = LivenessInput<'a>>,
    timeouts: LivenessTimeouts,
    listening_since: Timestamp,
    now: Timestamp,
) -> LivenessDecision {
    let seen: Vec<LivenessInput<'_>> = seen.into_iter().collect();
    let mut domains: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for node in &seen {
        let silent = match node.link {
            Link::Connected { .. } => false,
            Link::Silent { .. } => true,
            // It could not be connected now, whatever happens to its domain.
            Link::BetweenCalls { .. } => continue,
        };
        // A node that was never provisioned, or was lost long ago, is no evidence of what happens now.
        if !silent || node.active {
            let (silent_here, alive) = domains.entry(node.failure_domain).or_default();
            *silent_here += usize::from(silent);
            *alive += 1;
        }
    }
    // One node cannot be distinguished from its domain. Two or more that become silent together can.
    let is_suspect_domain =
        |domain: &str| domains.get(domain).is_some_and(|(silent, all)| *silent >= 2 && silent * 2 > *all);

    let mut decision = LivenessDecision::default();
    let grace_ends = listening_since.saturating_add(timeouts.grace).unwrap_or(Timestamp::MAX);
    for node in &seen {
        match node.link {
            Link::Connected { .. } | Link::BetweenCalls { .. } if node.may_be_active && !node.active => {
                decision.restore.push(node.node.clone());
            }
            Link::Connected { .. } => {}
            Link::BetweenCalls { until, .. } => {
                decision.recheck = Some(decision.recheck.map_or(until, |at| at.min(until)));
            }
            Link::Silent { since } if node.active => {
                let lost_at = since.saturating_add(timeouts.lost_after).unwrap_or(Timestamp::MAX).max(grace_ends);
                if is_suspect_domain(node.failure_domain) {
                    // The domain is reported at the end of the grace period, so a check is due then.
                    if now < grace_ends {
                        decision.recheck = Some(decision.recheck.map_or(grace_ends, |at| at.min(grace_ends)));
                    }
                } else if lost_at <= now {
                    decision.withdraw.push(node.node.clone());
                } else {
                    decision.recheck = Some(decision.recheck.map_or(lost_at, |at| at.min(lost_at)));
                }
            }
            Link::Silent { .. } => {}
        }
    }
    if now >= grace_ends {
        let domains = domains.iter().filter(|(domain, _)| is_suspect_domain(domain));
        decision.held = domains
            .map(|(domain, (silent, nodes))| SilentDomain {
                failure_domain: (*domain).to_owned(),
                silent: *silent,
                nodes: *nodes,
            })
            .collect();
    }
    decision
}

/// The last validation passed, the machine was not restarted since, and it is not being released.
pub fn may_be_active(node: &Node) -> bool {
    let released = node.machine.as_ref().is_some_and(|(machine, _)| machine.phase.is_releasing());
    !released && node.observed.as_ref().is_some_and(|(observed, _)| observed.passed.is_some() && !observed.rebooted)
}

/// Transactions of a decision. Each is fenced by the node's last report and its design record, so a node that left is
/// not restored.
pub fn transactions(fleet: &Fleet, decision: &LivenessDecision) -> Vec<(NodeName, Txn)> {
    let keys = Keys::new(&fleet.env);
    let change = |name: &NodeName, back: bool| {
        let node = fleet.get(name)?;
        let (observed, at) = node.observed.as_ref()?;
        let key = keys.active_role(observed.passed.as_ref()?, name);
        let op = if back {
            let role = node.record.as_ref()?.role.clone();
            Op::put_json(key, &ActiveRole::new(role, observed)).ok()?
        } else {
            Op::delete(key)
        };
        let txn = Txn::new()
            .guard(Guard::observed(keys.observed(name), Some(*at)))
            .guard(Guard::observed(keys.node(name), node.record_at))
            .op(op);
        Some((name.clone(), txn))
    };
    let lost = decision.withdraw.iter().filter_map(|name| change(name, false));
    lost.chain(decision.restore.iter().filter_map(|name| change(name, true))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Nodes of one domain, each silent since a second, or connected.
    fn fleet(nodes: &[(&str, Option<i64>, bool)]) -> Vec<(NodeName, Link, bool)> {
        let link = |silent: &Option<i64>| match silent {
            Some(second) => Link::Silent { since: at(*second) },
            None => Link::Connected { since: at(0) },
        };
        nodes.iter().map(|(name, silent, active)| (NodeName::new(*name).unwrap(), link(silent), *active)).collect()
    }

    fn decide_at(nodes: &[(&str, Option<i64>, bool)], now: i64) -> LivenessDecision {
        let fleet = fleet(nodes);
        let seen = fleet.iter().map(|(node, link, active)| LivenessInput {
            node,
            failure_domain: "rack1",
            link: *link,
            may_be_active: true,
            active: *active,
        });
        decide(seen, LivenessTimeouts::default(), at(0), at(now))
    }

    fn names(nodes: &[NodeName]) -> Vec<&str> {
        nodes.iter().map(NodeName::as_str).collect()
    }

    #[test]
    fn silent_node_is_lost_after_the_timeout() {
        let nodes = [("a1", Some(100), true), ("b1", None, true), ("c1", None, true)];
        let early = decide_at(&nodes, 129);
        assert_eq!((names(&early.withdraw), early.recheck), (vec![], Some(at(130))));
        let late = decide_at(&nodes, 130);
        assert_eq!((names(&late.withdraw), late.recheck), (vec!["a1"], None));
    }

    #[test]
    fn node_of_cron_is_silent_after_two_missed_calls() {
        let every = CallInterval::try_from(SignedDuration::from_mins(30)).ok();
        let link = |since, listening, now| Link::without_connection(at(since), every, at(listening), at(now));
        let between =
            |due, until| Link::BetweenCalls { since: at(0), every: every.unwrap(), due: at(due), until: at(until) };
        for (case, listening, now, expected) in [
            ("after its call", 0, 1, between(1800, 3660)),
            ("late", 0, 3659, between(1800, 3660)),
            ("two calls are missing", 0, 3660, Link::Silent { since: at(0) }),
            ("no server listened: it could not call", 9000, 9001, between(10_800, 12_660)),
            ("it did not call since", 9000, 12_660, Link::Silent { since: at(0) }),
        ] {
            assert_eq!(link(0, listening, now), expected, "{case}");
        }
        assert_eq!(Link::without_connection(at(0), None, at(0), at(1)), Link::Silent { since: at(0) });
    }

    #[test]
    fn node_of_cron_stays_active_between_calls() {
        let every = CallInterval::try_from(SignedDuration::from_mins(30)).unwrap();
        let between = Link::BetweenCalls { since: at(0), every, due: at(1800), until: at(3660) };
        let decide_with = |link, active, now| {
            let name = NodeName::new("a1").unwrap();
            let input = LivenessInput { node: &name, failure_domain: "rack1", link, may_be_active: true, active };
            let decision = decide([input], LivenessTimeouts::default(), at(0), at(now));
            (decision.withdraw.len(), decision.restore.len(), decision.recheck)
        };
        assert_eq!(decide_with(between, true, 3000), (0, 0, Some(at(3660))));
        assert_eq!(
            decide_with(between, false, 3000),
            (0, 1, None),
            "it was withdrawn by another version of the server"
        );
        assert_eq!(decide_with(Link::Silent { since: at(0) }, true, 3660), (1, 0, None));
    }

    #[test]
    fn nodes_between_calls_do_not_count_for_their_domain() {
        let every = CallInterval::try_from(SignedDuration::from_mins(30)).unwrap();
        let names: Vec<NodeName> = ["a1", "b1", "c1", "d1"].iter().map(|name| NodeName::new(*name).unwrap()).collect();
        let links = [
            Link::Silent { since: at(100) },
            Link::Silent { since: at(100) },
            Link::BetweenCalls { since: at(0), every, due: at(1800), until: at(3660) },
            Link::BetweenCalls { since: at(0), every, due: at(1800), until: at(3660) },
        ];
        let seen = names.iter().zip(links).map(|(node, link)| LivenessInput {
            node,
            failure_domain: "rack1",
            link,
            may_be_active: true,
            active: true,
        });
        let decision = decide(seen, LivenessTimeouts::default(), at(0), at(1000));
        assert_eq!((decision.withdraw.len(), decision.held[0].silent, decision.held[0].nodes), (0, 2, 2));
    }

    #[test]
    fn grace_period_delays_loss() {
        let nodes = [("a1", Some(0), true), ("b1", None, true), ("c1", None, true)];
        assert_eq!(decide_at(&nodes, 59).withdraw, []);
        assert_eq!(decide_at(&nodes, 59).recheck, Some(at(60)));
        assert_eq!(names(&decide_at(&nodes, 60).withdraw), ["a1"]);
    }

    #[test]
    fn mostly_silent_domain_is_held() {
        let nodes = [("a1", Some(100), true), ("b1", Some(100), true), ("c1", None, true)];
        let decision = decide_at(&nodes, 1000);
        assert_eq!(decision.withdraw, []);
        assert_eq!(decision.held, [SilentDomain { failure_domain: "rack1".into(), silent: 2, nodes: 3 }]);
    }

    #[test]
    fn held_domain_is_rechecked_after_the_grace() {
        let nodes = [("a1", Some(0), true), ("b1", Some(0), true), ("c1", None, true)];
        let early = decide_at(&nodes, 10);
        assert_eq!((early.held, early.recheck), (vec![], Some(at(60))));
    }

    #[test]
    fn dead_nodes_do_not_count_for_their_domain() {
        let never_made = [("n1", Some(0), false), ("n2", Some(0), false), ("n3", Some(0), false)];
        let living = [("a1", Some(100), true), ("b1", None, true), ("c1", None, true)];
        let nodes: Vec<_> = never_made.into_iter().chain(living).collect();
        let decision = decide_at(&nodes, 1000);
        assert_eq!((names(&decision.withdraw), decision.held), (vec!["a1"], vec![]));
    }

    #[test]
    fn single_node_of_a_domain_can_be_lost() {
        assert_eq!(names(&decide_at(&[("a1", Some(100), true)], 130).withdraw), ["a1"]);
    }

    #[test]
    fn returning_node_is_restored() {
        let decision = decide_at(&[("a1", None, false), ("b1", None, true)], 500);
        assert_eq!((names(&decision.restore), decision.withdraw), (vec!["a1"], vec![]));
    }
}
