//! What is left of a node when it is gone: nothing.

use muster_core::fleet::Node;
use muster_core::keys::Keys;
use muster_core::names::NodeName;
use muster_core::txn::{Guard, Op, Txn};

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
    Txn { guards: seen.map(|(key, at)| Guard::seen(key, at)).into(), ops: ops.collect() }
}

/// Takes a node out of its role. Liveness may have put it back a moment ago, at the version that it has passed: that key
/// goes whether or not it was seen.
pub(crate) fn withdrawal(keys: &Keys, name: &NodeName, node: &Node) -> Vec<Op> {
    let passed = node.observed.as_ref().and_then(|(observed, _)| observed.passed.as_ref());
    let unseen = passed.filter(|passed| !node.active.contains_key(*passed));
    node.active.keys().chain(unseen).map(|version| Op::delete(keys.active_role(version, name))).collect()
}
