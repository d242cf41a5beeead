//! The node leaves. Its machine goes on until nobody needs it any more, for a while.

use muster_core::node::record::MachinePhase;

use super::turn::Turn;
use super::{Decision, Decommission, HoldReason};

/// What is seen of the machine does not matter: it is about to be given back, whatever it is.
pub(super) fn decide(turn: &Turn<'_>, departure: &Decommission) -> Decision {
    let Decommission { waits_for, until } = departure;
    if waits_for.is_empty() || turn.now >= *until {
        return Decision::Goto { phase: MachinePhase::Releasing, attempt: 1 };
    }
    let reason = HoldReason::OthersRunFirst { waits_for: waits_for.clone(), until: *until };
    Decision::Hold { reason, recheck: Some(*until) }
}
