//! Transactions that make `nodes/` follow a design. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use muster_core::fleet::{Fleet, Node};
use muster_core::keys::Keys;
use muster_core::names::NodeName;
use muster_core::node::decommission::begin;
use muster_core::node::record::NodeRecord;
use muster_core::txn::{Guard, Op, Txn};

use crate::fleet_change::FleetChange;

/// Compares a fleet with a design: who comes, who goes, and who is another one. Nothing is written.
pub fn compare(fleet: &Fleet, design: &BTreeMap<NodeName, NodeRecord>) -> FleetChange {
    let mut change = FleetChange::default();
    for (name, wanted) in design {
        match known(fleet, name) {
            None => change.added.push(name.clone()),
            Some(known) if known.is_leaving() => change.returned.push(name.clone()),
            Some(known) if is_another(known, wanted) => change.changed.push(name.clone()),
            Some(_) => {}
        }
    }
    for (name, node, record) in fleet.recorded().filter(|(name, ..)| !design.contains_key(*name)) {
        match &node.machine {
            // Nobody has begun with a machine for it, so nobody has to end one.
            None => change.removed.push(name.clone()),
            Some(_) if record.is_leaving() => {}
            Some(_) => change.leaving.push(name.clone()),
        }
    }
    change
}

/// The transactions of a comparison, each part fenced by what it was decided on.
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

/// BlobMarks a node as leaving, and takes it out of its role in the same transaction. Fenced by its last report: what that
/// has put into the role is what is taken out, and the next one finds that the node is out of service.
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

/// Whether a node is another one for those who ask what changes. That others were written before it moves its place in
/// the design and nothing else.
fn is_another(known: &NodeRecord, wanted: &NodeRecord) -> bool {
    *known != NodeRecord { position: known.position, leaving: known.leaving, ..wanted.clone() }
}

/// Removes everything that a node has in the store: also what it published, and the run that somebody asked of it. What an
/// operator said about it, data and pauses, stays the operator's: it is shown as being for nobody, and holds again for a
/// node of the same name. Refused if the design, its machine or a report has moved it since:
/// what was written meanwhile would be left behind.
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

/// Takes a node out of its role. Liveness may have put it back a moment ago, at the version that it has passed: that key
/// goes whether or not it was seen.
pub(crate) fn withdrawal(keys: &Keys, name: &NodeName, node: &Node) -> Vec<Op> {
    let passed = node.observed.as_ref().and_then(|(observed, _)| observed.passed.as_ref());
    let unseen = passed.filter(|passed| !node.active.contains_key(*passed));
    node.active.keys().chain(unseen).map(|version| Op::delete(keys.active_role(version, name))).collect()
}
