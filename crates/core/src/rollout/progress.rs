//! Progress of a rollout: states of its nodes, and the reasons why it waits. It is computed from plan, record and fleet
//! on request and is not stored.
//!
//! [`RolloutNodeState`] is the position of a node in one rollout. It is not
//! [`NodeState`](crate::node::status::NodeState): a node may be validated and still wait for its grant.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::{NodeName, Role};
use crate::node::agent::CallInterval;
use crate::node::pause::NodePause;
use crate::node::policy::PolicyRecord;
use crate::report::ResourceError;

use crate::rollout::record::{FailureKind, PauseReason};

/// Progress of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// In the order of the plan. Nodes that joined later are in the wave in which they are moved.
    pub waves: Vec<WaveProgress>,
    /// Current holds, the widest first: holds of the whole rollout before holds of one node.
    pub holds: Vec<Hold>,
}

/// Progress of one wave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaveProgress {
    pub nodes: Vec<NodeProgress>,
}

/// One node of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeProgress {
    pub node: NodeName,
    pub role: Role,
    #[serde(flatten)]
    pub state: RolloutNodeState,
    /// Time of the grant by this rollout.
    #[serde(rename = "started", alias = "granted", default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub granted: Option<Timestamp>,
    /// Time at which the node counts as failed if it is not healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
    /// Reason why the node has no grant. None if its wave has not begun or it needs no grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
}

/// Position of a node in a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RolloutNodeState {
    /// Not granted yet.
    Waiting,
    /// Granted, no report yet.
    Granted,
    /// Waits for other nodes. Not a failure.
    Pending {
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    /// Has validated the target. It counts as healthy after the soak time.
    Soaking {
        #[schema(value_type = String, format = DateTime)]
        until: Timestamp,
    },
    Healthy,
    Failed {
        how: FailureKind,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ResourceError>,
        /// Does not count for the limits: it was unhealthy before, or an operator has resumed since.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        forgiven: bool,
    },
    /// Skipped by an operator.
    Skipped,
    /// Removed from the design.
    Removed,
}

impl RolloutNodeState {
    /// Name in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            RolloutNodeState::Waiting => "waiting",
            RolloutNodeState::Granted => "granted",
            RolloutNodeState::Pending { .. } => "pending",
            RolloutNodeState::Soaking { .. } => "soaking",
            RolloutNodeState::Healthy => "healthy",
            RolloutNodeState::Failed { .. } => "failed",
            RolloutNodeState::Skipped => "skipped",
            RolloutNodeState::Removed => "removed",
        }
    }

    /// Name on screens.
    pub fn label(&self) -> &'static str {
        match self {
            RolloutNodeState::Granted => "in progress",
            RolloutNodeState::Waiting
            | RolloutNodeState::Pending { .. }
            | RolloutNodeState::Soaking { .. }
            | RolloutNodeState::Healthy
            | RolloutNodeState::Failed { .. }
            | RolloutNodeState::Skipped
            | RolloutNodeState::Removed => self.word(),
        }
    }
}

/// Reason why a rollout, or one of its nodes, does not progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "hold", rename_all = "snake_case")]
pub enum Hold {
    /// The rollout is paused. Nothing is granted until an operator acts.
    Halted { why: PauseReason },
    /// No window is open.
    Window {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        opens: Option<Timestamp>,
    },
    /// The previous wave has not passed.
    Turn { stage: u32, wave: u32 },
    /// All nodes of the wave are healthy. The soak time is running.
    Soak {
        #[schema(value_type = String, format = DateTime)]
        until: Timestamp,
    },
    /// The checks of the gate are running.
    Gate {
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    /// An operator has to promote the wave.
    Promotion { stage: u32, wave: u32 },
    /// The role has its maximum number of unavailable nodes.
    RoleBudget { role: Role, unavailable: u32, allowed: u32 },
    /// The label value has its maximum number of unavailable nodes.
    DomainBudget { domain: String, unavailable: u32, allowed: u32 },
    /// The wave ramps up: it grants more nodes when the first ones are healthy.
    Ramp { in_flight: u32, allowed: u32 },
    /// Most of a failure domain is unreachable. No node of it is granted.
    Brake { domain: String, silent: u32, nodes: u32 },
    /// A granted node is not healthy yet.
    Node {
        node: NodeName,
        #[serde(flatten)]
        state: RolloutNodeState,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        deadline: Option<Timestamp>,
    },
    /// A node is paused by an operator.
    Paused {
        node: NodeName,
        /// Not flattened: it may have a field `node` itself.
        paused: NodePause,
    },
    /// An operator has cordoned a node.
    Cordoned { node: NodeName, cordon: PolicyRecord },
    /// The agent of a node is not connected.
    Silent {
        node: NodeName,
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    /// A node was started and does not know it yet: cron starts its agent.
    NotDue {
        node: NodeName,
        every: CallInterval,
        /// Time of its next call.
        #[schema(value_type = String, format = DateTime)]
        due: Timestamp,
    },
    /// The machine of a node is not provisioned yet.
    Machine { node: NodeName },
}

impl Hold {
    /// Name of the hold in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Hold::Halted { .. } => "halted",
            Hold::Window { .. } => "window",
            Hold::Turn { .. } => "turn",
            Hold::Soak { .. } => "soak",
            Hold::Gate { .. } => "gate",
            Hold::Promotion { .. } => "promotion",
            Hold::RoleBudget { .. } => "role_budget",
            Hold::DomainBudget { .. } => "domain_budget",
            Hold::Ramp { .. } => "ramp",
            Hold::Brake { .. } => "brake",
            Hold::Node { .. } => "node",
            Hold::Paused { .. } => "paused",
            Hold::Cordoned { .. } => "cordoned",
            Hold::Silent { .. } => "silent",
            Hold::NotDue { .. } => "not_due",
            Hold::Machine { .. } => "machine",
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hold::Halted { why } => why.fmt(f),
            Hold::Window { opens: Some(opens) } => write!(f, "no window is open before {}", clock(*opens)),
            Hold::Window { opens: None } => f.write_str("no window is open, and none will open"),
            Hold::Turn { stage, wave } => write!(f, "wave {wave} of stage {stage} has not passed"),
            Hold::Soak { until } => write!(f, "the wave soaks until {}", clock(*until)),
            Hold::Gate { since } => write!(f, "the checks of the gate are running since {}", clock(*since)),
            Hold::Promotion { stage, wave } => {
                write!(f, "wave {wave} of stage {stage} waits for promotion by an operator")
            }
            Hold::RoleBudget { role, unavailable, allowed } => {
                write!(
                    f,
                    "{} of role {role} {} unavailable, the limit is {allowed}",
                    nodes(*unavailable),
                    are(*unavailable)
                )
            }
            Hold::DomainBudget { domain, unavailable, allowed } => {
                write!(
                    f,
                    "{} of {domain} {} unavailable, the limit is {allowed}",
                    nodes(*unavailable),
                    are(*unavailable)
                )
            }
            Hold::Ramp { in_flight, allowed } => {
                write!(
                    f,
                    "{} {} in progress, the wave ramps up with {allowed} at a time",
                    nodes(*in_flight),
                    are(*in_flight)
                )
            }
            Hold::Brake { domain, silent, nodes } => {
                write!(f, "{silent} of {nodes} nodes of {domain} are unreachable: no node there is started")
            }
            Hold::Node { node, state, deadline } => {
                write!(f, "{node} is {}", state.label())?;
                if let RolloutNodeState::Failed { how, error, .. } = state {
                    write!(f, ": {}", how.words())?;
                    error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))?;
                }
                deadline.map_or(Ok(()), |deadline| write!(f, ", deadline {}", clock(deadline)))
            }
            Hold::Paused { node, paused } => write!(f, "{node} is paused: {paused}"),
            Hold::Cordoned { node, cordon } => write!(f, "{node} is {cordon}"),
            Hold::NotDue { node, every, due } => {
                write!(f, "cron starts the agent of {node} every {every}, next call by {}", clock(*due))
            }
            Hold::Silent { node, since } => write!(f, "the agent of {node} is unreachable since {}", clock(*since)),
            Hold::Machine { node } => write!(f, "the machine of {node} is not provisioned yet"),
        }
    }
}

fn nodes(count: u32) -> String {
    format!("{count} {}", if count == 1 { "node" } else { "nodes" })
}

fn are(count: u32) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn clock(at: Timestamp) -> impl fmt::Display {
    at.strftime("%Y-%m-%d %H:%M:%S UTC")
}

/// Number of nodes by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeCounts {
    pub nodes: u32,
    pub waiting: u32,
    /// Granted, no report yet.
    pub granted: u32,
    pub pending: u32,
    pub soaking: u32,
    pub healthy: u32,
    pub failed: u32,
    pub skipped: u32,
    pub removed: u32,
}

impl NodeCounts {
    pub fn add(&mut self, state: &RolloutNodeState) {
        self.nodes += 1;
        match state {
            RolloutNodeState::Waiting => self.waiting += 1,
            RolloutNodeState::Granted => self.granted += 1,
            RolloutNodeState::Pending { .. } => self.pending += 1,
            RolloutNodeState::Soaking { .. } => self.soaking += 1,
            RolloutNodeState::Healthy => self.healthy += 1,
            RolloutNodeState::Failed { .. } => self.failed += 1,
            RolloutNodeState::Skipped => self.skipped += 1,
            RolloutNodeState::Removed => self.removed += 1,
        }
    }
}

impl WaveProgress {
    /// Number of nodes by role and state.
    pub fn counts(&self) -> BTreeMap<Role, NodeCounts> {
        let mut counts: BTreeMap<Role, NodeCounts> = BTreeMap::new();
        self.nodes.iter().for_each(|node| counts.entry(node.role.clone()).or_default().add(&node.state));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::pause::{PauseRecord, PauseScope};
    use crate::node::policy::NodePolicy;
    use crate::rollout::record::Threshold;

    #[test]
    fn hold_survives_json() {
        let at: Timestamp = "2026-11-15T10:00:00Z".parse().unwrap();
        let (node, role) = (NodeName::new("web1").unwrap(), Role::new("web").unwrap());
        let error = ResourceError { resource: None, file: Some("site.pp".into()), line: Some(3), message: "no".into() };
        let states = [
            RolloutNodeState::Waiting,
            RolloutNodeState::Granted,
            RolloutNodeState::Pending { since: at },
            RolloutNodeState::Soaking { until: at },
            RolloutNodeState::Healthy,
            RolloutNodeState::Failed { how: FailureKind::Expired, error: Some(error), forgiven: true },
            RolloutNodeState::Skipped,
            RolloutNodeState::Removed,
        ];
        let nodes = states.map(|state| Hold::Node { node: node.clone(), state, deadline: Some(at) });
        let pause = PauseRecord { by: "jo".into(), reason: "disk".into(), since: at, until: Some(at) };
        let paused = NodePause { scope: PauseScope::Host { node: node.clone() }, pause };
        let (policy, by, reason) = (NodePolicy::Cordoned, "jo".to_owned(), "disk".to_owned());
        let cordon = PolicyRecord { policy, by, reason, since: at, keeps: None };
        let failures = PauseReason::Failures { threshold: Threshold::Wave, failed: 2, tolerated: 1, nodes: Vec::new() };
        let mut holds = vec![
            Hold::Halted { why: failures },
            Hold::Window { opens: Some(at) },
            Hold::Window { opens: None },
            Hold::Turn { stage: 1, wave: 2 },
            Hold::Soak { until: at },
            Hold::Gate { since: at },
            Hold::Promotion { stage: 1, wave: 1 },
            Hold::RoleBudget { role: role.clone(), unavailable: 1, allowed: 1 },
            Hold::DomainBudget { domain: "rack1".into(), unavailable: 1, allowed: 1 },
            Hold::Ramp { in_flight: 1, allowed: 1 },
            Hold::Brake { domain: "rack1".into(), silent: 3, nodes: 4 },
            Hold::Paused { node: node.clone(), paused },
            Hold::Cordoned { node: node.clone(), cordon },
            Hold::Silent { node: node.clone(), since: at },
            Hold::NotDue {
                node: node.clone(),
                every: jiff::SignedDuration::from_mins(30).try_into().unwrap(),
                due: at,
            },
            Hold::Machine { node: node.clone() },
        ];
        holds.extend(nodes);
        for hold in holds {
            let progress = NodeProgress {
                node: node.clone(),
                role: role.clone(),
                state: RolloutNodeState::Waiting,
                granted: None,
                deadline: None,
                hold: Some(hold.clone()),
            };
            let text = serde_json::to_string(&progress).unwrap();
            assert_eq!(serde_json::from_str::<NodeProgress>(&text).unwrap(), progress, "{text}");
            assert_eq!(serde_json::to_value(&hold).unwrap()["hold"], hold.word());
        }
    }
}
