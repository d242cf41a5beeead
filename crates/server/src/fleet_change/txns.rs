//! Transactions that make `nodes/` follow a design. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::design::plan::NodeDiff;
use muster_core::fleet::{Fleet, Node};
use muster_core::keys::Keys;
use muster_core::names::NodeName;
use muster_core::node::decommission::begin;
use muster_core::node::record::NodeRecord;
use muster_core::txn::{Guard, Op, Txn};

use crate::fleet_change::FleetChange;

/// Compares a fleet with a design, and says how the difference is executed. Writes nothing.
pub fn compare(fleet: &Fleet, design: &BTreeMap<NodeName, NodeRecord>) -> FleetChange {
    let registered = fleet.recorded().map(|(name, _, record)| (name, record));
    let NodeDiff { create, change, remove } = NodeDiff::compute(registered, design);
    let (returned, added) = create.into_iter().partition(|name| known(fleet, name).is_some());
    let mut change = FleetChange { added, returned, changed: change.into_iter().collect(), ..FleetChange::default() };
    for (name, node, _) in fleet.recorded().filter(|(name, ..)| !design.contains_key(*name)) {
        match &node.machine {
            // There is no machine to release: the keys are removed at once.
            None => change.removed.push(name.clone()),
            Some(_) if remove.contains(name) => change.leaving.push(name.clone()),
            // It is leaving already.
            Some(_) => {}
        }
    }
    change
}

/// Transactions of a change, each guarded by the data that it was decided on.
pub(super) fn parts(
    fleet: &Fleet,
    design: &BTreeMap<NodeName, NodeRecord>,
    change: &FleetChange,
    now: Timestamp,
) -> Result<Vec<Txn>, serde_json::Error> {
    let keys = Keys::new(&fleet.env);
    let empty = Node::default();
    let mut parts = Vec::new();
    for (name, wanted) in design {
        let wanted = NodeRecord { leaving: None, ..wanted.clone() };
        if known(fleet, name) != Some(&wanted) {
            let seen = Guard::observed(keys.node(name), fleet.get(name).and_then(|node| node.record_at));
            parts.push(Txn::new().guard(seen).op(Op::put_json(keys.node(name), &wanted)?));
        }
    }
    let leaving = change.leaving.iter().filter_map(|name| Some((name, fleet.get(name)?)));
    for (name, node) in leaving {
        parts.extend(departure(&keys, name, node, now)?);
    }
    for name in &change.removed {
        parts.push(removal(&keys, name, fleet.get(name).unwrap_or(&empty)));
    }
    Ok(parts)
}

/// Marks a node as leaving, and removes it from its role in the same transaction. Guarded by its last report: that report
/// added the role that is removed, and the next report finds the node out of service.
fn departure(keys: &Keys, name: &NodeName, node: &Node, now: Timestamp) -> Result<Option<Txn>, serde_json::Error> {
    let Some(record) = &node.record else { return Ok(None) };
    let record = NodeRecord { leaving: Some(begin(now)), ..record.clone() };
    let seen = [(keys.node(name), node.record_at), (keys.observed(name), node.observed.as_ref().map(|(_, at)| *at))];
    let mut ops = withdrawal(keys, name, node);
    ops.push(Op::put_json(keys.node(name), &record)?);
    Ok(Some(Txn { guards: seen.map(|(key, at)| Guard::observed(key, at)).into(), ops }))
}

fn known<'a>(fleet: &'a Fleet, name: &NodeName) -> Option<&'a NodeRecord> {
    fleet.get(name)?.record.as_ref()
}

/// Removes all keys that a node has, including published values and a requested run. Data and pauses of operators for this
/// node stay: they apply to a later node of the same name. Guarded by its record, machine and last report, so that nothing
/// is left behind.
pub(crate) fn removal(keys: &Keys, name: &NodeName, node: &Node) -> Txn {
    let seen = [
        (keys.node(name), node.record_at),
        (keys.machine(name), node.machine.as_ref().map(|(_, at)| *at)),
        (keys.observed(name), node.observed.as_ref().map(|(_, at)| *at)),
    ];
    let fixed = [
        keys.node(name),
        keys.machine(name),
        keys.observed(name),
        keys.history(name),
        keys.published(name),
        keys.asked(name),
        keys.desired(name),
        keys.presence(name),
        keys.provisioned(true, name),
        keys.provisioned(false, name),
    ];
    let states = node.states.keys().map(|state| keys.status(state, name));
    let running = node.running.iter().map(|version| keys.running_version(version, name));
    let ops = fixed.into_iter().chain(states).chain(running).map(Op::delete).chain(withdrawal(keys, name, node));
    Txn { guards: seen.map(|(key, at)| Guard::observed(key, at)).into(), ops: ops.collect() }
}

/// Removes a node from its role. Liveness may just have added it at the version that it validated: that key is removed
/// whether or not the view shows it.
pub(crate) fn withdrawal(keys: &Keys, name: &NodeName, node: &Node) -> Vec<Op> {
    let passed = node.observed.as_ref().and_then(|(observed, _)| observed.passed.as_ref());
    let unseen = passed.filter(|passed| !node.active.contains_key(*passed));
    node.active.keys().chain(unseen).map(|version| Op::delete(keys.active_role(version, name))).collect()
}
