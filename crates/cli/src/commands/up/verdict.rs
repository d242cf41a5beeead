//! Whether a fleet that was just brought up is where it should be, is on its way, or will not get there by itself.

use muster_core::records::MachinePhase;
use muster_core::standing::{Why, Word};
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
    let fleet: Vec<&Standing> = fleet.iter().filter(|node| node.row.standing != Word::Leaving).collect();
    if fleet.iter().all(|node| node.row.standing == Word::Validated && node.ran) {
        Verdict::Validated
    } else if fleet.iter().any(|node| moves(node)) {
        Verdict::Underway
    } else {
        Verdict::Stuck
    }
}

/// Whether something will become of the node without anybody else.
fn moves(node: &Standing) -> bool {
    match node.row.standing {
        Word::Applying | Word::Validating | Word::Configured | Word::Outdated | Word::Silent | Word::Provisioning => {
            true
        }
        Word::Validated => !node.ran,
        Word::Blocked | Word::Leaving => false,
        Word::Pending => is_about_to_run(&node.row),
        Word::Failed | Word::Invalid => match &node.row.why {
            Some(Why::Failed { attempt, .. }) => *attempt < ATTEMPTS,
            _ => false,
        },
        Word::Unprovisioned => match &node.row.why {
            Some(Why::Machine { phase: MachinePhase::Failed { retry, .. }, .. }) => retry.is_some(),
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_core::liveness::Link;
    use muster_core::names::{NodeName, Role};
    use muster_core::reason::Need;
    use muster_core::records::MachineStage;

    use super::*;

    fn node(standing: Word, why: Option<Why>) -> Standing {
        let row = NodeRow {
            node: NodeName::new("web1").unwrap(),
            role: Role::new("web").unwrap(),
            standing,
            since: None,
            running: None,
            desired: None,
            why,
            active: false,
            link: Link::Connected { since: Timestamp::UNIX_EPOCH },
            paused: None,
        };
        Standing { row, ran: true }
    }

    fn failed(attempt: u32) -> Standing {
        node(Word::Failed, Some(Why::Failed { reason: None, errors: Vec::new(), attempt, retry: None }))
    }

    fn pending(have: u32) -> Standing {
        let need = Need::Role { role: Role::new("db").unwrap(), want: 1, have };
        node(Word::Pending, Some(Why::Waiting { needs: vec![need], retry: None }))
    }

    fn unprovisioned(retry: Option<Timestamp>) -> Standing {
        let phase = MachinePhase::Failed { during: MachineStage::Booting, cause: String::new(), retry };
        node(Word::Unprovisioned, Some(Why::Machine { phase, attempt: 1 }))
    }

    #[test]
    fn a_fleet_is_judged_by_its_slowest() {
        let validated = || node(Word::Validated, None);
        let table = [
            (vec![validated(), validated()], Verdict::Validated),
            (vec![validated(), Standing { ran: false, ..validated() }], Verdict::Underway),
            (vec![validated(), node(Word::Applying, None)], Verdict::Underway),
            (vec![failed(1), pending(0)], Verdict::Underway),
            (vec![failed(ATTEMPTS), pending(0)], Verdict::Stuck),
            (vec![validated(), pending(1)], Verdict::Underway),
            (vec![pending(0), pending(0)], Verdict::Stuck),
            (vec![unprovisioned(Some(Timestamp::MAX)), pending(0)], Verdict::Underway),
            (vec![unprovisioned(None), pending(0)], Verdict::Stuck),
            (vec![node(Word::Blocked, None)], Verdict::Stuck),
            (vec![validated(), node(Word::Leaving, None)], Verdict::Validated),
            (vec![pending(0), node(Word::Leaving, None)], Verdict::Stuck),
        ];
        for (fleet, verdict) in table {
            let words: Vec<_> = fleet.iter().map(|node| node.row.standing.as_str()).collect();
            assert_eq!(judge(&fleet), verdict, "{words:?}");
        }
    }
}
