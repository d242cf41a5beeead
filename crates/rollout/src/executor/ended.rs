//! Keeps what became of a rollout before the grants of the next one overwrite it.

use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};
use muster_core::txn::{Guard, Op, Revision, Txn};

/// A rollout that is over, and of which nobody has kept what became of it. One that was completed at once; one that ended
/// otherwise when the next one has begun and not granted anything: until then its nodes may still be on their way.
pub fn unkept(fleet: &Fleet) -> Option<(&RolloutRecord, Revision)> {
    let (active, at) = fleet.deciding_rollout()?;
    let (record, at) = match active.phase {
        RolloutPhase::Completed => (active, at),
        RolloutPhase::Running
        | RolloutPhase::Paused { .. }
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::RolledBack { .. }
        | RolloutPhase::Superseded { .. } => {
            let before = fleet.rollouts().range(..active.id).next_back().filter(|_| active.grants == 0);
            before.map(|(_, (record, at))| (record, *at))?
        }
    };
    (!record.phase.is_open() && record.outcome.is_none()).then_some((record, at))
}

/// Writes down under which name it is kept.
pub(super) fn kept(fleet: &Fleet, mut record: RolloutRecord, at: Revision, name: String) -> serde_json::Result<Txn> {
    let keys = Keys::new(&fleet.env);
    record.outcome = Some(name);
    Ok(Txn::new()
        .guard(Guard::Unchanged { key: keys.rollout(record.id), since: at })
        .guard(Guard::Absent { key: keys.destroying() })
        .guard(Guard::Absent { key: keys.restoring() })
        .op(Op::put_json(keys.rollout(record.id), &record)?))
}
