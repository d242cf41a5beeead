//! What holds between a decision and its transaction.

use muster_core::fleet::Fleet;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};
use muster_core::txn::Revision;

use crate::step::Change;

/// A rollout that goes on, as it was when something was decided about it. Whoever has waited for something since looks
/// whether that still holds: an operator may have paused or ended it, and was told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecidedOn {
    pub(super) id: RolloutId,
    pub(super) at: Revision,
}

impl DecidedOn {
    /// The rollout that goes on now.
    pub(super) fn running(fleet: &Fleet) -> Option<(Self, &RolloutRecord)> {
        let (record, at) = fleet.deciding_rollout().filter(|(record, _)| record.phase == RolloutPhase::Running)?;
        Some((Self { id: record.id, at }, record))
    }

    /// The record, if nobody has written it since.
    pub(super) fn still(self, fleet: &Fleet) -> Option<&RolloutRecord> {
        Self::running(fleet).filter(|(on, _)| *on == self).map(|(_, record)| record)
    }
}

/// Whether a node may move by a change, or a wave or the whole rollout is over. Such a thing must not be done on an old view:
/// what the nodes have said since, through other servers, may speak against it. What only writes down how things stand, or
/// stops, may.
pub(super) fn moves_something(before: &RolloutRecord, change: &Change) -> bool {
    let Change { record, grants, completes } = change;
    let said = |record: &RolloutRecord| {
        let waves = record.waves.iter();
        waves.map(|wave| (wave.gate.is_some(), wave.passed.is_some())).collect::<Vec<_>>()
    };
    !grants.is_empty() || *completes || said(record) != said(before)
}
