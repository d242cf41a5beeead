//! How nodes are before a rollout begins. What is not well is listed, uses the budget up, and is repaired first.

use muster_core::fleet::{DesiredVersion, Node};
use muster_core::names::NodeName;
use muster_core::node::liveness::Link;
use muster_core::node::pause::PauseScope;
use muster_core::node::record::NodeRecord;
use muster_core::node::status::{Activity, NodeState, NodeStatus, Reason, node_status};
use muster_core::rollout::plan::UnhealthyNode;

use crate::sight::Sight;
use crate::waves::Place;

/// Whether the node has no machine yet, and never had: it serves nobody, so nobody misses it, and it uses no budget up.
///
/// A machine that is made anew for a node that has served is missed. So it is what the node has said that decides, and only
/// for one that has said nothing whether its machine was ever made.
pub fn is_still_being_made(node: &Node) -> bool {
    let has_run = node.observed.as_ref().is_some_and(|(observed, _)| observed.last.is_some());
    let was_made = node.provisioned == Some(true);
    !has_run && !was_made && node.states.is_empty() && node.running.is_empty()
}

/// How a node stands, with a hiccup of its connection overlooked: a plan must not come out differently because a server was
/// just replaced. What its agent does right now is not in the view, so that one which runs counts as not begun.
pub fn standing(sight: &Sight<'_>, name: &NodeName, node: &Node, desired: Option<&DesiredVersion>) -> NodeStatus {
    let link = match sight.gone_since(name) {
        Some(since) => Link::Silent { since },
        None => Link::Connected { since: sight.now },
    };
    node_status(sight.fleet, node, desired, link, &Activity::Idle, None)
}

/// Place of a node in its stage, derived from its [`NodeState`], and its entry in the plan if it is unhealthy.
///
/// A node that does not run what it should, and can be reached, comes first: the new version may repair it. One that cannot
/// be reached comes last: its agent is gone, its machine is not there, or it is paused. A node that served until all nodes
/// were sent elsewhere a moment ago keeps its drawn place: nothing says that it needs repair.
pub(crate) fn preflight(
    sight: &Sight<'_>,
    name: &NodeName,
    node: &Node,
    record: &NodeRecord,
    desired: Option<&DesiredVersion>,
) -> (Place, Option<UnhealthyNode>) {
    let NodeStatus { state: word, reason: why, .. } = standing(sight, name, node, desired);
    let is_paused = is_paused(sight, name);
    let can_be_told = match word {
        NodeState::Validated => return (if is_paused { Place::Last } else { Place::Drawn }, None),
        // Before the first version there is nothing that a node could fail at.
        NodeState::Outdated if why == Some(Reason::NoVersion) => return (Place::Drawn, None),
        NodeState::Leaving | NodeState::Provisioning | NodeState::Unprovisioned | NodeState::Silent => false,
        NodeState::Outdated
        | NodeState::Applying
        | NodeState::Validating
        | NodeState::Pending
        | NodeState::Failed
        | NodeState::Invalid
        | NodeState::Blocked
        // An agent that was never there is not overlooked for a moment: there is nobody to be told.
        | NodeState::Configured => !is_paused && (!is_still_being_made(node) || sight.is_connected(name)),
    };
    // Who holds a slot of a rollout that is replaced goes straight to the newest version: whatever it was told may be what is
    // wrong, and then it would use the budget up for ever. Those are few. Who was told together with all the others is not.
    let is_on_its_way = matches!(why, Some(Reason::Behind { .. }))
        && sight.fleet.granted(name).is_none()
        && node.observed.as_ref().is_some_and(|(observed, _)| observed.passed.is_some());
    // Asked for those alone that are not well: they are few, and there may be many pauses.
    let paused = sight.fleet.pause_of(name, &record.role, sight.now).map(|paused| format!("; {paused}"));
    let why = format!("{}{}", why.map(|why| why.to_string()).unwrap_or_default(), paused.unwrap_or_default());
    let unwell = UnhealthyNode { node: name.clone(), word, why, repaired: can_be_told };
    let place = match (can_be_told, is_on_its_way) {
        (false, _) => Place::Last,
        (true, true) => Place::Drawn,
        (true, false) => Place::First,
    };
    (place, Some(unwell))
}

/// Whether somebody has said of this very node that it is not to run. A role or an environment that is paused as a whole keeps
/// its order: it is still moved in waves when it goes on.
fn is_paused(sight: &Sight<'_>, name: &NodeName) -> bool {
    let pauses = sight.fleet.pauses();
    let pause = (!pauses.is_empty()).then(|| pauses.get(&PauseScope::Host { node: name.clone() })).flatten();
    pause.is_some_and(|(pause, _)| !pause.is_over(sight.now))
}
