//! Keeps what became of a rollout before the grants of the next one overwrite it.

use muster_core::fleet::Fleet;
use muster_core::keys::Keys;
use muster_core::rollout::record::{Phase, RolloutRecord};
use muster_core::txn::{Guard, Op, Revision, Txn};

use super::{Reached, RolloutController};
use crate::api::chain;
use crate::replica::Held;
use crate::rollouts::{outcome, shown};

/// A rollout that is over, and of which nobody has kept what became of it. One that was completed at once; one that ended
/// otherwise when the next one has begun and not granted anything: until then its nodes may still be on their way.
pub(super) fn unkept(fleet: &Fleet) -> Option<(&RolloutRecord, Revision)> {
    let (active, at) = fleet.deciding_rollout()?;
    let (record, at) = match active.phase {
        Phase::Completed => (active, at),
        Phase::Running
        | Phase::Paused { .. }
        | Phase::Aborted { .. }
        | Phase::RolledBack { .. }
        | Phase::Superseded { .. } => {
            let before = fleet.rollouts().range(..active.id).next_back().filter(|_| active.grants == 0);
            before.map(|(_, (record, at))| (record, *at))?
        }
    };
    (!record.phase.is_open() && record.outcome.is_none()).then_some((record, at))
}

impl RolloutController {
    /// Keeps what became of a rollout that is over, if there is one. None if there is nothing to keep, or it cannot be
    /// kept: nothing waits for that.
    pub(super) async fn keep_outcome(&self, held: &Held) -> Option<Reached> {
        let env = &held.env;
        let digest = {
            let fleets = self.app.view.fleets();
            unkept(fleets.get(env)?)?.0.plan.clone()
        };
        let plan = self.app.plans.get(&digest).await.ok()?;
        let (mut record, at, stood) = {
            let fleets = self.app.view.fleets();
            let fleet = fleets.get(env)?;
            let (record, at) = unkept(fleet).filter(|(record, _)| record.plan == digest)?;
            (record.clone(), at, shown::stood(&self.app, fleet, record, &plan))
        };
        match outcome::keep(&self.app, &stood).await {
            Ok(digest) => record.outcome = Some(digest),
            Err(error) => {
                tracing::warn!(%env, rollout = %record.id, error = chain(&error), "what became of it cannot be kept");
                return None;
            }
        }
        let keys = Keys::of(env);
        let txn = Txn::new()
            .guard(Guard::Unchanged { key: keys.rollout(record.id), since: at })
            .guard(Guard::Absent { key: keys.destroying() })
            .guard(Guard::Absent { key: keys.restoring() })
            .op(Op::put_json(keys.rollout(record.id), &record).ok()?);
        Some(self.commit(held, txn, "what became of a rollout cannot be written").await)
    }
}
