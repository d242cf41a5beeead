//! Whether a fleet that was just brought up is where it should be, is on its way, or will not get there by itself.

use muster_core::node::record::MachinePhase;
use muster_core::node::status::{NodeState, Reason};
use muster_wire::operator::NodeRow;

use super::line::is_about_to_run;

/// So many runs in a row must fail before a node counts as unable: the first failures are often others that are late.
pub(super) const ATTEMPTS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Verdict {
    Validated,
    Underway,
    /// Nothing moves, and nothing will: what does not stand right either failed often enough, or waits for those.
    Stuck,
}

/// A node, and whether its last run began since the fleet was brought up: what is older proves nothing about now.
#[derive(Clone, Debug)]
pub(in crate::commands) struct Standing {
    pub(in crate::commands) row: NodeRow,
    pub(in crate::commands) ran: bool,
}

/// Judges those that stay: a node that leaves keeps nobody waiting.
pub(in crate::commands) fn judge(fleet: &[Standing]) -> Verdict {
    let fleet: Vec<&Standing> = fleet.iter().filter(|node| node.row.state != NodeState::Leaving).collect();
    if fleet.iter().all(|node| node.row.state == NodeState::Validated && node.ran) {
        Verdict::Validated
    } else if fleet.iter().any(|node| moves(node)) {
        Verdict::Underway
    } else {
        Verdict::Stuck
    }
}

/// Whether something will become of the node without anybody else.
fn moves(node: &Standing) -> bool {
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

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_core::names::{NodeName, Role};
    use muster_core::node::liveness::Link;
    use muster_core::node::record::MachineStage;
    use muster_core::report::reason::Need;

    use super::*;

    fn node(state: NodeState, reason: Option<Reason>) -> Standing {
        let row = NodeRow {
            node: NodeName::new("web1").unwrap(),
            role: Role::new("web").unwrap(),
            state,
            since: None,
            running: None,
            desired: None,
            reason,
            active: false,
            link: Link::Connected { since: Timestamp::UNIX_EPOCH },
            paused: None,
        };
        Standing { row, ran: true }
    }

    fn failed(attempt: u32) -> Standing {
        node(NodeState::Failed, Some(Reason::Failed { reason: None, errors: Vec::new(), attempt, retry: None }))
    }

    fn pending(have: u32) -> Standing {
        let need = Need::Role { role: Role::new("db").unwrap(), want: 1, have };
        node(NodeState::Pending, Some(Reason::Waiting { needs: vec![need], retry: None }))
    }

    fn unprovisioned(retry: Option<Timestamp>) -> Standing {
        let phase = MachinePhase::Failed { during: MachineStage::Booting, cause: String::new(), retry };
        node(NodeState::Unprovisioned, Some(Reason::Machine { phase, attempt: 1 }))
    }

    #[test]
    fn a_fleet_is_judged_by_its_slowest() {
        let validated = || node(NodeState::Validated, None);
        let table = [
            (vec![validated(), validated()], Verdict::Validated),
            (vec![validated(), Standing { ran: false, ..validated() }], Verdict::Underway),
            (vec![validated(), node(NodeState::Applying, None)], Verdict::Underway),
            (vec![failed(1), pending(0)], Verdict::Underway),
            (vec![failed(ATTEMPTS), pending(0)], Verdict::Stuck),
            (vec![validated(), pending(1)], Verdict::Underway),
            (vec![pending(0), pending(0)], Verdict::Stuck),
            (vec![unprovisioned(Some(Timestamp::MAX)), pending(0)], Verdict::Underway),
            (vec![unprovisioned(None), pending(0)], Verdict::Stuck),
            (vec![node(NodeState::Blocked, None)], Verdict::Stuck),
            (vec![validated(), node(NodeState::Leaving, None)], Verdict::Validated),
            (vec![pending(0), node(NodeState::Leaving, None)], Verdict::Stuck),
        ];
        for (fleet, verdict) in table {
            let words: Vec<_> = fleet.iter().map(|node| node.row.state.as_str()).collect();
            assert_eq!(judge(&fleet), verdict, "{words:?}");
        }
    }
}
