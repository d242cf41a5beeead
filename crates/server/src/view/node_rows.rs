//! Rows of the node list: the view, combined with the agents of this replica and of the others.

use std::collections::BTreeMap;

use muster_core::filter::Filter;
use muster_core::fleet::{Fleet, Node};
use muster_core::names::NodeName;
use muster_core::node::liveness::Link;
use muster_core::node::pause::NodePause;
use muster_core::node::record::NodeRecord;
use muster_core::node::status::{Activity, NodeStatus, node_status};
use muster_wire::operator::NodeRow;
use muster_wire::sync::AgentActivity;

use crate::agents::{AgentLocation, Links};
use crate::view::node_fields::NodeFields;

/// Activities of the agents of other replicas; empty where they were not requested, or did not arrive.
pub type RemoteActivities = BTreeMap<NodeName, AgentActivity>;

/// Sources of agents' activities.
#[derive(Clone, Copy, Debug)]
pub struct AgentActivities<'a> {
    pub links: &'a Links,
    pub elsewhere: &'a RemoteActivities,
}

impl AgentActivities<'_> {
    /// The connection of a node's agent, and its activity as far as it is known.
    pub fn agent(&self, fleet: &Fleet, name: &NodeName) -> (Link, Activity) {
        let contact = self.links.agent(fleet, name);
        let activity = match &contact.at {
            AgentLocation::Local(session) => session.activity(),
            AgentLocation::Remote(_) => self.elsewhere.get(name).map(|agent| agent.doing.clone()).unwrap_or_default(),
            AgentLocation::Disconnected => Activity::Idle,
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
        state,
        since,
        running: node.running.first().cloned(),
        desired: desired.map(|desired| desired.version.clone()),
        reason,
        active: node.active().is_some(),
        link,
        paused,
    }
}

/// All nodes of the design in its order, and those that leave it.
pub fn all(fleet: &Fleet, agents: AgentActivities<'_>) -> Vec<NodeRow> {
    matching(fleet, agents, &Filter::default())
}

/// The nodes that match a filter, in the order of the design.
pub fn matching(fleet: &Fleet, agents: AgentActivities<'_>, filter: &Filter) -> Vec<NodeRow> {
    let mut nodes: Vec<_> = fleet.recorded().collect();
    nodes.sort_by(|(a, _, x), (b, _, y)| (x.position, a.natural()).cmp(&(y.position, b.natural())));
    let row = |(name, node, record): (&NodeName, &Node, &NodeRecord)| {
        let row = row(fleet, agents, name, node, record);
        let machine = node.machine.as_ref().map(|(machine, _)| machine);
        filter.matches(&NodeFields { row: &row, record, machine }).then_some(row)
    };
    nodes.into_iter().filter_map(row).collect()
}
