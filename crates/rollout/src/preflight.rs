//! State of each node before a rollout starts. Unhealthy nodes are listed, use the budget, and are repaired first.

use muster_core::fleet::{DesiredVersion, Node};
use muster_core::names::NodeName;
use muster_core::node::liveness::Link;
use muster_core::node::pause::PauseScope;
use muster_core::node::record::NodeRecord;
use muster_core::node::status::{Activity, NodeState, NodeStatus, Reason, node_status};
use muster_core::rollout::plan::UnhealthyNode;

use crate::decision::DecisionInput;
use crate::plan::waves::WavePlacement;

/// True if the node has no machine yet and never had one. It serves nothing and uses no budget.
///
/// A node that has served is missed while its machine is rebuilt. Its reports therefore decide first, and the
/// provisioning state only if there is no report.
pub fn is_unprovisioned(node: &Node) -> bool {
    let has_run = node.observed.as_ref().is_some_and(|(observed, _)| observed.last.is_some());
    let was_made = node.provisioned == Some(true);
    !has_run && !was_made && node.states.is_empty() && node.running.is_empty()
}

/// The status of a node, ignoring a short disconnection: a restarted replica must not change a plan. The current
/// activity of the agent is not in the view, and a running node counts as idle.
pub fn settled_status(
    input: &DecisionInput<'_>,
    name: &NodeName,
    node: &Node,
    desired: Option<&DesiredVersion>,
) -> NodeStatus {
    let link = match input.disconnected_since(name) {
        Some(since) => Link::Silent { since },
        None => Link::Connected { since: input.now },
    };
    node_status(input.fleet, node, desired, link, &Activity::Idle, None)
}

/// Placement of a node in its stage, derived from its [`NodeState`], and its entry in the plan if it is unhealthy.
///
/// A reachable node that does not run its desired version comes first: the new version may repair it. An unreachable one
/// comes last: its agent is disconnected, its machine does not exist, or it is paused or cordoned. A node that served until all nodes
/// were given another version a moment ago keeps its drawn place: there is no sign that it needs repair. A node that has not
/// failed and is not validated yet is coming up.
pub(crate) fn preflight(
    input: &DecisionInput<'_>,
    name: &NodeName,
    node: &Node,
    record: &NodeRecord,
    desired: Option<&DesiredVersion>,
) -> (WavePlacement, Option<UnhealthyNode>) {
    let NodeStatus { state, reason, .. } = settled_status(input, name, node, desired);
    let is_held = node.cordon().is_some() || is_paused(input, name);
    let is_reachable = match state {
        NodeState::Validated => return (if is_held { WavePlacement::Last } else { WavePlacement::Seeded }, None),
        // Without a version there is nothing to fail.
        NodeState::Outdated if reason == Some(Reason::NoVersion) => return (WavePlacement::Seeded, None),
        NodeState::Leaving | NodeState::Provisioning | NodeState::Unprovisioned | NodeState::Silent => false,
        NodeState::Outdated
        | NodeState::Applying
        | NodeState::Validating
        | NodeState::Pending
        | NodeState::Failed
        | NodeState::Invalid
        | NodeState::Blocked
        // An agent that has never connected has no grace time.
        | NodeState::Configured => !is_held && (!is_unprovisioned(node) || input.is_connected(name)),
    };
    // A node with a grant of the superseded rollout goes straight to the new version: the version that it was granted
    // may be what broke it, and it would use the budget forever. There are few such nodes. A node that was moved
    // together with all nodes at once is not repaired.
    let is_moving_at_once = matches!(reason, Some(Reason::Behind { .. }))
        && input.fleet.granted(name).is_none()
        && node.observed.as_ref().is_some_and(|(observed, _)| observed.passed.is_some());
    // Only for unhealthy nodes: they are few, and there may be many pauses.
    let paused = input.fleet.pause_of(name, &record.role, input.now).map(|paused| format!("; {paused}"));
    let why = format!("{}{}", reason.map(|reason| reason.to_string()).unwrap_or_default(), paused.unwrap_or_default());
    let unhealthy = UnhealthyNode { node: name.clone(), state, why, repaired: is_reachable };
    let has_failed = matches!(state, NodeState::Failed | NodeState::Invalid | NodeState::Blocked);
    let placement = match (is_reachable, is_moving_at_once) {
        (false, _) => WavePlacement::Last,
        (true, true) => WavePlacement::Seeded,
        (true, false) if has_failed => WavePlacement::First,
        (true, false) => WavePlacement::ComingUp,
    };
    (placement, Some(unhealthy))
}

/// True if this very node is paused. A pause of its role or of the environment keeps the order of the nodes: they are
/// still moved in waves when it ends.
fn is_paused(input: &DecisionInput<'_>, name: &NodeName) -> bool {
    let pauses = input.fleet.pauses();
    let pause = (!pauses.is_empty()).then(|| pauses.get(&PauseScope::Host { node: name.clone() })).flatten();
    pause.is_some_and(|(pause, _)| !pause.is_over(input.now))
}
