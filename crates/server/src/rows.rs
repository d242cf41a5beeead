//! A node as people and their tools see it: the view and the hub put together.

use muster_core::fleet::{Desired, Fleet, Node};
use muster_core::names::NodeName;
use muster_core::records::NodeRecord;
use muster_core::standing::{self, Standing};
use muster_wire::operator::NodeRow;

use crate::hub::Hub;

/// How a node stands now.
pub fn standing(fleet: &Fleet, hub: &Hub, name: &NodeName, node: &Node, desired: Option<&Desired>) -> Standing {
    let (link, activity) = hub.link(&fleet.env, name);
    standing::judge(fleet, node, desired, link, &activity)
}

pub fn row(
    fleet: &Fleet,
    hub: &Hub,
    name: &NodeName,
    node: &Node,
    record: &NodeRecord,
    desired: Option<&Desired>,
) -> NodeRow {
    let (link, activity) = hub.link(&fleet.env, name);
    let Standing { word, since, why } = standing::judge(fleet, node, desired, link, &activity);
    NodeRow {
        node: name.clone(),
        role: record.role.clone(),
        standing: word,
        since,
        running: node.running.first().cloned(),
        desired: desired.map(|desired| desired.version.clone()),
        why,
        active: node.active().is_some(),
        link,
    }
}

/// All nodes of the design, in the order of the design.
pub fn all(fleet: &Fleet, hub: &Hub) -> Vec<NodeRow> {
    let desired = fleet.desired();
    let mut nodes: Vec<_> = fleet.designed().collect();
    nodes.sort_by(|(a, _, x), (b, _, y)| (x.position, a.natural()).cmp(&(y.position, b.natural())));
    nodes.into_iter().map(|(name, node, record)| row(fleet, hub, name, node, record, desired.as_ref())).collect()
}
