//! What has to be written for `nodes/` to follow a design. Pure.

use std::collections::BTreeMap;

use muster_core::fleet::{Fleet, Node};
use muster_core::keys::Keys;
use muster_core::names::NodeName;
use muster_core::records::NodeRecord;
use muster_core::txn::{Guard, Op, Txn};

use super::FleetChange;
use super::removal::removal;

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
    for (name, ..) in fleet.recorded().filter(|(name, ..)| !design.contains_key(*name)) {
        change.removed.push(name.clone());
    }
    change
}

/// The transactions of a comparison, each part fenced by what it was decided on.
pub(super) fn parts(
    fleet: &Fleet,
    design: &BTreeMap<NodeName, NodeRecord>,
    change: &FleetChange,
) -> Result<Vec<Txn>, serde_json::Error> {
    let keys = Keys::of(&fleet.env);
    let empty = Node::default();
    let mut parts = Vec::new();
    for (name, wanted) in design {
        let wanted = NodeRecord { leaving: None, ..wanted.clone() };
        if known(fleet, name) != Some(&wanted) {
            let seen = Guard::seen(keys.node(name), fleet.get(name).and_then(|node| node.record_at));
            parts.push(Txn::new().guard(seen).op(Op::put_json(keys.node(name), &wanted)?));
        }
    }
    for name in &change.removed {
        parts.push(removal(&keys, name, fleet.get(name).unwrap_or(&empty)));
    }
    Ok(parts)
}

fn known<'a>(fleet: &'a Fleet, name: &NodeName) -> Option<&'a NodeRecord> {
    fleet.get(name)?.record.as_ref()
}

/// Whether a node is another one for those who ask what changes. That others were written before it moves its place in
/// the design and nothing else.
fn is_another(known: &NodeRecord, wanted: &NodeRecord) -> bool {
    *known != NodeRecord { position: known.position, leaving: known.leaving, ..wanted.clone() }
}
