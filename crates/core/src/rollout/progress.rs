//! How a rollout and its nodes stand at one moment, and who or what holds it up: data for people and programs. It is worked
//! out from the plan, the record and the environment whenever somebody asks, and is kept nowhere.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::names::{NodeName, Role};
use crate::node::pause::NodePause;
use crate::report::ResourceError;

use crate::rollout::record::{FailureKind, PauseReason};

/// How a rollout stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// In the order of the plan. Nodes that joined later are in the wave that they are treated in.
    pub waves: Vec<WaveProgress>,
    /// What holds the rollout up now, the widest first: what concerns everybody before what concerns one node.
    pub holds: Vec<Hold>,
}

/// How the nodes of one wave stand.
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
    /// When this rollout granted it the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub granted: Option<Timestamp>,
    /// When it counts as failed if it is not healthy by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deadline: Option<Timestamp>,
    /// What it waits for before it is granted; none if its turn has not come, or is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
}

/// Where a node is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RolloutNodeState {
    /// It was not granted anything yet.
    Waiting,
    /// It was granted the target, and has not answered.
    Granted,
    /// It waits for something from others. That is no failure.
    Pending {
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    /// It has proved that it runs the target, and is watched until it counts.
    Soaking {
        #[schema(value_type = String, format = DateTime)]
        until: Timestamp,
    },
    Healthy,
    Failed {
        how: FailureKind,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ResourceError>,
        /// It does not count: it was not well before either, or somebody has resumed since.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        forgiven: bool,
    },
    /// An operator has set it aside.
    Skipped,
    /// The design does not want it any more.
    Removed,
}

impl RolloutNodeState {
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
}

/// What a rollout, or one node of it, waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "hold", rename_all = "snake_case")]
pub enum Hold {
    /// It is paused: nothing is granted until a person says so.
    Halted { why: PauseReason },
    /// No window is open.
    Window {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        opens: Option<Timestamp>,
    },
    /// The wave before has not passed.
    Turn { stage: u32, wave: u32 },
    /// All nodes of the wave are well; it is watched.
    Soak {
        #[schema(value_type = String, format = DateTime)]
        until: Timestamp,
    },
    /// The checks of the gate are being asked.
    Gate {
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    /// A person has to promote the wave.
    Promotion { stage: u32, wave: u32 },
    /// As many nodes of the role are unavailable as may be.
    RoleBudget { role: Role, unavailable: u32, allowed: u32 },
    /// As many nodes with this value of the label are unavailable as may be.
    DomainBudget { domain: String, unavailable: u32, allowed: u32 },
    /// The wave begins with few, and goes on when those are well.
    Ramp { in_flight: u32, allowed: u32 },
    /// Most of a failure domain is silent: nothing is done there.
    Brake { domain: String, silent: u32, nodes: u32 },
    /// A granted node has not become healthy yet.
    Node {
        node: NodeName,
        #[serde(flatten)]
        state: RolloutNodeState,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>, format = DateTime)]
        deadline: Option<Timestamp>,
    },
    /// A node is not to run, by somebody's word.
    Paused {
        node: NodeName,
        /// Not flattened: it may name the node itself.
        paused: NodePause,
    },
    /// The agent of a node is not there.
    Silent {
        node: NodeName,
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
    },
    /// The machine of a node is not there yet.
    Machine { node: NodeName },
}

impl Hold {
    /// Why in one word, as it crosses the wire.
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
            Hold::Silent { .. } => "silent",
            Hold::Machine { .. } => "machine",
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hold::Halted { why } => why.fmt(f),
            Hold::Window { opens: Some(opens) } => write!(f, "no window is open before {}", clock(*opens)),
            Hold::Window { opens: None } => f.write_str("no window is open, and none opens again"),
            Hold::Turn { stage, wave } => write!(f, "wave {wave} of stage {stage} has not passed"),
            Hold::Soak { until } => write!(f, "the wave is watched until {}", clock(*until)),
            Hold::Gate { since } => write!(f, "the checks of the gate are asked since {}", clock(*since)),
            Hold::Promotion { stage, wave } => {
                write!(f, "wave {wave} of stage {stage} waits for a person to promote it")
            }
            Hold::RoleBudget { role, unavailable, allowed } => {
                write!(
                    f,
                    "{} of role {role} {} unavailable, and {allowed} may be",
                    nodes(*unavailable),
                    are(*unavailable)
                )
            }
            Hold::DomainBudget { domain, unavailable, allowed } => {
                write!(f, "{} of {domain} {} unavailable, and {allowed} may be", nodes(*unavailable), are(*unavailable))
            }
            Hold::Ramp { in_flight, allowed } => {
                write!(
                    f,
                    "{} {} under way, and the wave goes on with {allowed} at a time for now",
                    nodes(*in_flight),
                    are(*in_flight)
                )
            }
            Hold::Brake { domain, silent, nodes } => {
                write!(f, "{silent} of {nodes} nodes of {domain} are silent: nothing is done there")
            }
            Hold::Node { node, state, deadline } => {
                write!(f, "{node} is {}", state.word())?;
                if let RolloutNodeState::Failed { how, error, .. } = state {
                    write!(f, ": {}", how.words())?;
                    error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))?;
                }
                deadline.map_or(Ok(()), |deadline| write!(f, ", and has until {}", clock(deadline)))
            }
            Hold::Paused { node, paused } => write!(f, "{node} is not to run: {paused}"),
            Hold::Silent { node, since } => write!(f, "the agent of {node} is silent since {}", clock(*since)),
            Hold::Machine { node } => write!(f, "the machine of {node} is not there yet"),
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

/// How many nodes stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeCounts {
    pub nodes: u32,
    pub waiting: u32,
    /// Granted, and not answered.
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
    /// How many nodes of each role stand where.
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
    use crate::rollout::record::Threshold;

    #[test]
    fn a_hold_reads_back_as_what_was_written() {
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
            Hold::Silent { node: node.clone(), since: at },
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
