//! A rollout is rolled back, by somebody's word.

use muster_core::names::EnvName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::Halt;
use muster_core::txn::Revision;

use super::begin::{BeginRefused, Begun, begun, begun_by};
use super::errand::{Decided, Wish};
use super::need::Got;
use super::way_back::{Going, NoWayBack, WayBack};
use crate::sight::Sight;
use crate::start::{self, Starting};

#[derive(Clone, Debug)]
pub struct RollBack {
    id: RolloutId,
    who: Starting,
    why: Halt,
    back: WayBack,
}

impl RollBack {
    pub fn new(id: RolloutId, who: Starting, why: Halt) -> Self {
        Self { id, who, why, back: WayBack::from(id) }
    }
}

impl Wish for RollBack {
    type Done = Begun;
    type Refused = BeginRefused;
    const TRIES: usize = 8;

    fn decide(&mut self, sight: &Sight<'_>, got: Got, unsure: bool) -> Result<Decided<Begun>, BeginRefused> {
        if let Got::Nothing = got
            && let Some(begun) = begun_by(sight.fleet, &self.who.request, unsure)
        {
            return Ok(Decided::Already(begun));
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
