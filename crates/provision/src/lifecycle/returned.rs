//! The machine was being given back, and the node is wanted again.

use muster_core::node::record::MachinePhase;

use super::Decision;

/// Begins anew with whatever is there: the machine as it was, what is left of it, or none.
pub(super) fn decide() -> Decision {
    Decision::Goto { phase: MachinePhase::Declared, attempt: 1 }
}
