//! A rollout is rolled back, by somebody's word.

use muster_core::names::EnvName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::PauseReason;
use muster_core::txn::Revision;

use super::begin::{BeginRefused, Begun, begun, begun_by};
use super::errand::{Decided, Wish};
use super::need::Got;
use super::way_back::{Going, NoWayBack, WayBack};
use crate::sight::Sight;
use crate::start::{self, StartRefused, Starting};

#[derive(Clone, Debug)]
pub struct RollBack {
    pub id: RolloutId,
    pub who: Starting,
    why: PauseReason,
    /// Also if that is itself the way back from another one.
    undo_rollback: bool,
    back: WayBack,
}

impl RollBack {
    pub fn new(id: RolloutId, who: Starting, why: PauseReason) -> Self {
        Self { id, who, why, undo_rollback: false, back: WayBack::from(id) }
    }

    /// Also if the rollout is itself the way back from another one. Whoever asks to go back twice, or after it went back by
    /// itself, must not be taken to what was left: this has to be meant.
    #[must_use]
    pub fn undoing(self, undo_rollback: bool) -> Self {
        Self { undo_rollback, ..self }
    }

    /// Before anything is planned: who comes second is told of the first one, and not of what a plan would lack.
    fn may_begin(&self, sight: &Sight<'_>) -> Result<(), BeginRefused> {
        let (record, _) = sight.fleet.rollouts().get(&self.id).ok_or(NoWayBack::Unknown(self.id))?;
        start::may_go_back(sight.fleet, record)?;
        match record.rolls_back {
            Some(back_from) if !self.undo_rollback => {
                let (id, to) = (record.id, record.to.clone());
                Err(StartRefused::IsRollback { id, back_from, to }.into())
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Wish for RollBack {
    type Done = Begun;
    type Refused = BeginRefused;
    const TRIES: usize = 8;

    fn decide(&mut self, sight: &Sight<'_>, got: Got, unsure: bool) -> Result<Decided<Begun>, BeginRefused> {
        if let Got::Nothing = got {
            if let Some(begun) = begun_by(sight.fleet, &self.who.request, unsure) {
                return Ok(Decided::Already(begun));
            }
            self.may_begin(sight)?;
        }
        let (plan, digest) = match self.back.next(sight, got)? {
            Going::Needs(need) => return Ok(Decided::Needs(need)),
            Going::Ready { plan, digest } => (plan, digest),
        };
        let (record, at) = sight.fleet.rollouts().get(&self.id).ok_or(NoWayBack::Unknown(self.id))?;
        let started = start::roll_back(sight, &plan, &digest, self.who.clone(), (record, *at), &self.why)?;
        let Some(txn) = started.txn else { return Ok(Decided::Anew) };
        Ok(Decided::Write(txn, begun(started.id, &plan, None)))
    }

    fn done_at(done: Begun, revision: Revision) -> Begun {
        Begun { revision, ..done }
    }

    fn contended(&self, env: &EnvName) -> BeginRefused {
        BeginRefused::Contended(env.clone())
    }
}
