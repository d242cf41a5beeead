//! An operator's word to a rollout. It rewrites the record, as every step does, under its revision: once it is acknowledged,
//! nothing follows that was decided before it. Two words at the same moment both count, in either order.
//!
//! A word is said once, however often it is tried: its request is written together with what it changes. Else a promotion
//! whose answer was lost would be taken for one of the next wave, which nobody has looked at.

use muster_core::names::EnvName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::RolloutPhase;
use muster_core::txn::Revision;
use thiserror::Error;

use super::errand::{Decided, Wish};
use super::need::{Got, Need};
use crate::operate::{Command, OperateRefused, operate};
use crate::outgrown;
use crate::sight::Sight;

#[derive(Debug, Error)]
pub enum SayRefused {
    #[error("there is no rollout {0}")]
    Unknown(RolloutId),
    #[error(transparent)]
    Refused(#[from] OperateRefused),
    #[error("what is to be stored cannot be written as JSON")]
    Unwritable(#[from] serde_json::Error),
    #[error("rollout {0} is rewritten again and again at the same moment")]
    Contended(RolloutId),
}

/// What became of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub phase: RolloutPhase,
    pub changed: bool,
    pub revision: Revision,
}

/// Says something to a rollout.
#[derive(Clone, Debug)]
pub struct Say {
    pub id: RolloutId,
    pub command: Command,
    pub by: String,
    /// Made up by whoever says it.
    pub request: String,
}

/// So many are known again. Whoever asks once more does so within a moment.
const KNOWN: usize = 16;

impl Wish for Say {
    type Done = Said;
    type Refused = SayRefused;
    /// While a rollout goes on its record is rewritten at each of its steps, and a word may come between two of them again and
    /// again.
    const TRIES: usize = 32;

    fn decide(&mut self, sight: &Sight<'_>, got: Got, unsure: bool) -> Result<Decided<Said>, SayRefused> {
        let revision = sight.fleet.revision;
        // Wherever it was said: the rollout that goes on may be another one by now.
        let mut rollouts = sight.fleet.rollouts().values();
        if let Some((record, _)) = rollouts.find(|(record, _)| record.said.contains(&self.request)) {
            return Ok(Decided::Already(Said { phase: record.phase.clone(), changed: true, revision }));
        }
        let (record, at) = sight.fleet.rollouts().get(&self.id).ok_or(SayRefused::Unknown(self.id))?;
        let plan = if let Got::Plan(plan) = got {
            plan.ok()
        } else if self.command.needs_plan() {
            return Ok(Decided::Needs(Need::Plan(record.plan.clone())));
        } else {
            None
        };
        Ok(match operate(plan.as_deref(), record, &self.command, &self.by, sight)? {
            Some(mut operated) => {
                let said = &mut operated.record.said;
                said.drain(..(said.len() + 1).saturating_sub(KNOWN));
                said.push(self.request.clone());
                outgrown::fit(&mut operated.record);
                let txn = operated.txn(sight.fleet, *at)?;
                Decided::Write(txn, Said { phase: operated.record.phase, changed: true, revision })
            }
            // A try whose answer was lost may have been carried out.
            None => Decided::Already(Said { phase: record.phase.clone(), changed: unsure, revision }),
        })
    }

    fn done_at(done: Said, revision: Revision) -> Said {
        Said { revision, ..done }
    }

    fn contended(&self, _: &EnvName) -> SayRefused {
        SayRefused::Contended(self.id)
    }
}
