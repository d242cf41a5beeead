//! Rows of the node list: the view, combined with the agents of this replica and of the others. Filters select rows by field.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::filter::{Filter, FilterError, FilterFields, FilterKeys};
use muster_core::fleet::{Fleet, Node};
use muster_core::names::{NodeName, Version};
use muster_core::node::evidence::NotCounted;
use muster_core::node::failure::NodeFailure;
use muster_core::node::liveness::Link;
use muster_core::node::pause::NodePause;
use muster_core::node::policy::NodePolicy;
use muster_core::node::record::{MachinePhase, MachineRecord, NodeRecord};
use muster_core::node::status::{Activity, NodeState, NodeStatus, Reason, UNREACHABLE, node_status};
use muster_wire::operator::NodeRow;
use muster_wire::sync::AgentActivity;

use crate::agents::{AgentConnection, Links};

/// Activities of the agents of other replicas; empty where they were not requested, or did not arrive.
pub type RemoteActivities = BTreeMap<NodeName, AgentActivity>;

/// Sources of agents' activities.
#[derive(Clone, Copy, Debug)]
pub struct AgentActivities<'a> {
    pub links: &'a Links,
    pub remote: &'a RemoteActivities,
}

impl AgentActivities<'_> {
    /// The connection of a node's agent, and its activity as far as it is known.
    pub fn agent(&self, fleet: &Fleet, name: &NodeName) -> (Link, Activity) {
        let contact = self.links.agent(fleet, name);
        let activity = match &contact.at {
            AgentConnection::Local(session) => session.activity(),
            AgentConnection::Remote(_) => self.remote.get(name).map(|agent| agent.doing.clone()).unwrap_or_default(),
            AgentConnection::Disconnected => Activity::Idle,
        };
        (contact.link, activity)
    }
}

/// The pause of a node.
fn paused(fleet: &Fleet, agents: AgentActivities<'_>, name: &NodeName, node: &Node) -> Option<NodePause> {
    let role = &node.record.as_ref()?.role;
    fleet.pause_of(name, role, agents.links.now())
}

/// Status of a node.
pub fn status(fleet: &Fleet, agents: AgentActivities<'_>, name: &NodeName, node: &Node) -> NodeStatus {
    let (link, activity) = agents.agent(fleet, name);
    let paused = paused(fleet, agents, name, node);
    node_status(fleet, node, fleet.desired_of(name).as_ref(), link, &activity, paused.as_ref())
}

pub fn row(fleet: &Fleet, agents: AgentActivities<'_>, name: &NodeName, node: &Node, record: &NodeRecord) -> NodeRow {
    let desired = fleet.desired_of(name);
    let (link, activity) = agents.agent(fleet, name);
    let paused = paused(fleet, agents, name, node);
    let NodeStatus { state, since, reason } =
        node_status(fleet, node, desired.as_ref(), link, &activity, paused.as_ref());
    NodeRow {
        node: name.clone(),
        role: record.role.clone(),
        host: record.host(name),
        state,
        since,
        running: node.running.first().cloned(),
        not_counted: NotCounted::of_node(node, fleet.epoch(), link).filter(|_| !node.running.is_empty()),
        desired: desired.map(|desired| desired.version.clone()),
        reason,
        active: node.active().is_some(),
        agent: node.agent().cloned(),
        link,
        paused,
        policy: node.policy.as_ref().map(|(record, _)| record.clone()),
        checks: node
            .observed
            .as_ref()
            .and_then(|(observed, _)| observed.checks)
            .filter(|_| state == NodeState::Validated),
    }
}

/// All nodes of the design in its order, and those that leave it.
pub fn all(fleet: &Fleet, agents: AgentActivities<'_>) -> Vec<NodeRow> {
    matching(fleet, agents, &Filter::default())
}

/// The nodes that match a filter, in the order of the design.
pub fn matching(fleet: &Fleet, agents: AgentActivities<'_>, filter: &Filter) -> Vec<NodeRow> {
    in_order(fleet).into_iter().filter_map(|recorded| matching_row(fleet, agents, filter, recorded)).collect()
}

/// A node of the design, or one that leaves it.
pub type Recorded<'f> = (&'f NodeName, &'f Node, &'f NodeRecord);

/// All nodes in the order of the design. Each name is split once: comparisons of a sort would split it again and again.
pub fn in_order(fleet: &Fleet) -> Vec<Recorded<'_>> {
    let mut nodes: Vec<Recorded<'_>> = fleet.recorded().collect();
    nodes.sort_by_cached_key(|&(name, _, record)| (record.position, name.natural()));
    nodes
}

/// The row of a node, if it matches a filter.
pub fn matching_row(
    fleet: &Fleet,
    agents: AgentActivities<'_>,
    filter: &Filter,
    (name, node, record): Recorded<'_>,
) -> Option<NodeRow> {
    let row = row(fleet, agents, name, node, record);
    let machine = node.machine.as_ref().map(|(machine, _)| machine);
    filter.matches(&NodeFields { row: &row, record, machine }).then_some(row)
}

/// A node that has failed and was not validated since.
#[derive(Clone, Debug)]
pub struct FailedNode {
    /// State, begin and reason are those of the failure.
    pub row: NodeRow,
    /// Present state of the node.
    pub current: NodeState,
}

/// The failed nodes among those that match a filter, in the order of the design.
pub fn failed(fleet: &Fleet, agents: AgentActivities<'_>, filter: &Filter) -> Vec<FailedNode> {
    let failed = |row: NodeRow| {
        let (_, activity) = agents.agent(fleet, &row.node);
        let NodeRow { state, since, ref reason, .. } = row;
        let status = NodeStatus { state, since, reason: reason.clone() };
        let failure = NodeFailure::of_node(fleet.get(&row.node)?, &status, &activity)?;
        let row = NodeRow { state: failure.state, since: failure.since, reason: Some(failure.reason), ..row };
        Some(FailedNode { row, current: state })
    };
    matching(fleet, agents, filter).into_iter().filter_map(failed).collect()
}

/// The fields that a filter on nodes may use.
const KEYS: FilterKeys<'static> = FilterKeys {
    fixed: &[
        "name",
        "role",
        "state",
        "reason",
        "version",
        "desired",
        "liveness",
        "active",
        "policy",
        "phase",
        "failure_domain",
        "profile",
    ],
    open: &["label."],
    closed: &[
        ("state", &NodeState::FILTER_VALUES),
        ("liveness", &["connected", "between_calls", UNREACHABLE]),
        ("active", &["true", "false"]),
        ("policy", &NodePolicy::WORDS),
        ("phase", &MachinePhase::WORDS),
    ],
    aliases: &[("state", &NodeState::FILTER_ALIASES), ("liveness", &["silent"])],
};

/// Parses a filter of an environment's nodes. A role that no node has, or a release that does not exist, can never match, and
/// is an error.
pub(crate) fn parse_filter(fleet: &Fleet, text: &str) -> Result<Filter, FilterError> {
    let roles: BTreeSet<&str> = fleet.recorded().map(|(_, _, record)| record.role.as_str()).collect();
    let roles = Vec::from_iter(roles);
    let mut closed = KEYS.closed.to_vec();
    if !roles.is_empty() {
        closed.push(("role", &roles));
    }
    let releases = fleet.releases().keys();
    // A node may run a version whose release was removed.
    let versions: BTreeSet<&str> =
        releases.chain(fleet.nodes().flat_map(|(_, node)| &node.running)).map(Version::as_str).collect();
    let versions = Vec::from_iter(versions);
    if !versions.is_empty() {
        closed.extend([("version", &*versions), ("desired", &*versions)]);
    }
    Filter::parse(text, &FilterKeys { closed: &closed, ..KEYS })
}

/// A node with the records that its fields come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeFields<'a> {
    pub(crate) row: &'a NodeRow,
    pub(crate) record: &'a NodeRecord,
    pub(crate) machine: Option<&'a MachineRecord>,
}

impl FilterFields for NodeFields<'_> {
    fn any(&self, key: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
        let Self { row, record, machine } = *self;
        match key {
            // The host name matches too.
            "name" => test(row.node.as_str()) || row.host != row.node.as_str() && test(&row.host),
            "role" => test(row.role.as_str()),
            "state" => row.state.any_filter_value(test),
            "reason" => row.reason.as_ref().is_some_and(|why| reasons(why, test)),
            "version" => row.running.as_ref().is_some_and(|version| test(version.as_str())),
            "desired" => row.desired.as_ref().is_some_and(|version| test(version.as_str())),
            "liveness" => match row.link {
                Link::Connected { .. } => test("connected"),
                Link::BetweenCalls { .. } => test("between_calls"),
                Link::Silent { .. } => test(UNREACHABLE) || test("silent"),
            },
            "active" => test(if row.active { "true" } else { "false" }),
            "policy" => test(row.policy.as_ref().map(|record| record.policy).unwrap_or_default().word()),
            "phase" => machine.is_some_and(|machine| test(machine.phase.word())),
            "failure_domain" => test(&record.failure_domain),
            "profile" => record.profile.as_deref().is_some_and(test),
            _ => key.strip_prefix("label.").and_then(|name| record.labels.get(name)).is_some_and(|value| test(value)),
        }
    }
}

/// Tests the reason why a node is not converged: the kind of problem, and for a failed run its reason.
fn reasons(why: &Reason, test: &mut dyn FnMut(&str) -> bool) -> bool {
    if test(why.word()) {
        return true;
    }
    if let Reason::Failed { reason: Some(reason), .. } = why { test(reason.word()) } else { false }
}

#[cfg(test)]
mod tests {
    use muster_core::names::{NodeName, Role, RunId};
    use muster_core::node::pause::{NodePause, PauseRecord, PauseScope};
    use muster_core::report::reason::RunReason;

    use super::*;

    /// The values in a filter are the values in the API's answers.
    #[test]
    fn filter_values_are_the_values_of_the_api() {
        let whys = [
            Reason::Leaving { waits_for: Vec::new(), more: 0, until: jiff::Timestamp::UNIX_EPOCH },
            Reason::Silent,
            Reason::Running { run: RunId::new("run-1").unwrap() },
            Reason::NoVersion,
            Reason::Paused {
                version: "v1".parse().unwrap(),
                paused: NodePause {
                    scope: PauseScope::Global,
                    pause: PauseRecord {
                        by: "jo".into(),
                        reason: "x".into(),
                        since: jiff::Timestamp::UNIX_EPOCH,
                        until: None,
                    },
                },
            },
            Reason::Waiting { needs: Vec::new(), retry: None },
            Reason::Blocked { problem: String::new() },
            Reason::NotValidated,
            Reason::Restarted,
            Reason::Renewed,
            Reason::Failed { reason: None, errors: Vec::new(), attempt: 0, retry: None },
        ];
        for why in whys {
            assert_eq!(serde_json::to_value(&why).unwrap()["why"], why.word());
        }
        let reasons = [
            RunReason::Waiting { needs: Vec::new() },
            RunReason::NotCompiled,
            RunReason::ResourcesFailed { count: 1 },
            RunReason::Deadline { program: String::new(), seconds: 1 },
            RunReason::PendingIgnored { needs: Vec::new() },
            RunReason::DigestMismatch { expected: String::new(), found: String::new() },
            RunReason::ChecksFailed { names: Vec::new() },
        ];
        for reason in reasons {
            assert_eq!(serde_json::to_value(&reason).unwrap()["kind"], reason.word());
        }
        for word in NodeState::ALL {
            assert_eq!(serde_json::to_value(word).unwrap(), word.as_str());
            // A filter also takes the word of the screen.
            let mut values = Vec::new();
            word.any_filter_value(&mut |value| {
                values.push(value.to_owned());
                false
            });
            let current = values[0].as_str();
            assert!(NodeState::FILTER_VALUES.contains(&current), "{values:?}");
            assert_eq!(current.replace('_', " "), word.label());
            let is_alias = |value: &String| NodeState::FILTER_ALIASES.contains(&value.as_str());
            assert!(values[1..].iter().all(is_alias), "{values:?}");
            assert_eq!(values.last().unwrap(), word.as_str());
        }
    }

    #[test]
    fn every_field_has_a_value() {
        let row = NodeRow {
            node: NodeName::new("web1_blue").unwrap(),
            role: Role::new("web").unwrap(),
            host: "web1-blue".into(),
            state: NodeState::Failed,
            since: None,
            running: Some("v1".parse().unwrap()),
            not_counted: None,
            desired: Some("v2".parse().unwrap()),
            reason: Some(Reason::Failed {
                reason: Some(RunReason::NotCompiled),
                errors: Vec::new(),
                attempt: 1,
                retry: None,
            }),
            active: false,
            agent: None,
            link: Link::Silent { since: jiff::Timestamp::UNIX_EPOCH },
            paused: None,
            policy: None,
            checks: None,
        };
        let record = NodeRecord {
            role: row.role.clone(),
            profile: Some("edge".into()),
            labels: [("rack".to_owned(), "r1".to_owned())].into(),
            failure_domain: "rack1".into(),
            position: 0,
            flavor: None,
            host_name: None,
            leaving: None,
            created: None,
        };
        let machine: MachineRecord =
            serde_json::from_str(r#"{"driver":"local","phase":"booting","since":"2026-11-15T10:00:00Z"}"#).unwrap();
        let fields = NodeFields { row: &row, record: &record, machine: Some(&machine) };
        for key in KEYS.fixed.iter().chain(&["label.rack"]) {
            assert!(fields.any(key, &mut |_| true), "{key}");
        }
        let values = |key: &str| {
            let mut values = Vec::new();
            fields.any(key, &mut |value| {
                values.push(value.to_owned());
                false
            });
            values
        };
        assert_eq!(values("name"), ["web1_blue", "web1-blue"]);
        assert_eq!(values("reason"), ["failed", "not_compiled"]);
        assert_eq!(values("label.zone"), [""; 0]);
    }
}
