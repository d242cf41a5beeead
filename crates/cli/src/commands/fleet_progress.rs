//! Progress of a fleet towards validation, for `muster up` and `muster env apply`: validated, in progress, or stuck.

use muster_core::node::record::MachinePhase;
use muster_core::node::status::{NodeState, Reason};
use muster_core::report::reason::Need;
use muster_wire::operator::NodeRow;

/// Consecutive failed runs after which a node counts as stuck. The first failures are often caused by nodes that start
/// later.
const ATTEMPTS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FleetProgress {
    Validated,
    InProgress,
    /// No node makes progress: each one that is not validated has failed repeatedly, or waits for such a node.
    Stuck,
}

/// A node, and whether its last run started after the fleet did. Older runs do not count.
#[derive(Clone, Debug)]
pub(super) struct FleetNode {
    pub(super) row: NodeRow,
    pub(super) ran: bool,
}

/// Progress of all nodes except those that leave.
pub(super) fn fleet_progress(fleet: &[FleetNode]) -> FleetProgress {
    let fleet: Vec<&FleetNode> = fleet.iter().filter(|node| node.row.state != NodeState::Leaving).collect();
    if fleet.iter().all(|node| node.row.state == NodeState::Validated && node.ran) {
        FleetProgress::Validated
    } else if fleet.iter().any(|node| makes_progress(node)) {
        FleetProgress::InProgress
    } else {
        FleetProgress::Stuck
    }
}

/// True if the node makes progress without an operator and without other nodes.
fn makes_progress(node: &FleetNode) -> bool {
    match node.row.state {
        NodeState::Applying
        | NodeState::Validating
        | NodeState::Configured
        | NodeState::Outdated
        | NodeState::Silent
        | NodeState::Provisioning => true,
        NodeState::Validated => !node.ran,
        NodeState::Blocked | NodeState::Leaving => false,
        NodeState::Pending => is_about_to_run(&node.row),
        NodeState::Failed | NodeState::Invalid => match &node.row.reason {
            Some(Reason::Failed { attempt, .. }) => *attempt < ATTEMPTS,
            _ => false,
        },
        NodeState::Unprovisioned => match &node.row.reason {
            Some(Reason::Machine { phase: MachinePhase::Failed { retry, .. }, .. }) => retry.is_some(),
            _ => false,
        },
    }
}

/// True if all dependencies of a pending node are met by now.
pub(super) fn is_about_to_run(row: &NodeRow) -> bool {
    matches!(&row.reason, Some(Reason::Waiting { needs, .. }) if needs.iter().all(Need::is_met))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_core::names::Role;
    use muster_core::node::record::MachineStage;

    use super::*;
    use crate::output::testing::node_row;

    fn node(state: NodeState, reason: Option<Reason>) -> FleetNode {
        FleetNode { row: node_row("web1", state, reason), ran: true }
    }

    fn failed(attempt: u32) -> FleetNode {
        node(NodeState::Failed, Some(Reason::Failed { reason: None, errors: Vec::new(), attempt, retry: None }))
    }

    fn pending(have: u32) -> FleetNode {
        let need = Need::Role { role: Role::new("db").unwrap(), want: 1, have };
        node(NodeState::Pending, Some(Reason::Waiting { needs: vec![need], retry: None }))
    }

    fn unprovisioned(retry: Option<Timestamp>) -> FleetNode {
        let phase = MachinePhase::Failed { during: MachineStage::Booting, cause: String::new(), retry };
        node(NodeState::Unprovisioned, Some(Reason::Machine { phase, attempt: 1 }))
    }

    #[test]
    fn slowest_node_decides() {
        let validated = || node(NodeState::Validated, None);
        let table = [
            (vec![validated(), validated()], FleetProgress::Validated),
            (vec![validated(), FleetNode { ran: false, ..validated() }], FleetProgress::InProgress),
            (vec![validated(), node(NodeState::Applying, None)], FleetProgress::InProgress),
            (vec![failed(1), pending(0)], FleetProgress::InProgress),
            (vec![failed(ATTEMPTS), pending(0)], FleetProgress::Stuck),
            (vec![validated(), pending(1)], FleetProgress::InProgress),
            (vec![pending(0), pending(0)], FleetProgress::Stuck),
            (vec![unprovisioned(Some(Timestamp::MAX)), pending(0)], FleetProgress::InProgress),
            (vec![unprovisioned(None), pending(0)], FleetProgress::Stuck),
            (vec![node(NodeState::Blocked, None)], FleetProgress::Stuck),
            (vec![validated(), node(NodeState::Leaving, None)], FleetProgress::Validated),
            (vec![pending(0), node(NodeState::Leaving, None)], FleetProgress::Stuck),
        ];
        for (fleet, progress) in table {
            let states: Vec<_> = fleet.iter().map(|node| node.row.state.as_str()).collect();
            assert_eq!(fleet_progress(&fleet), progress, "{states:?}");
        }
    }
}
