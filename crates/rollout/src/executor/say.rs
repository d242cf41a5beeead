//! An operator's word to a rollout. It rewrites the record, as every step does, under its revision: once it is acknowledged,
//! nothing follows that was decided before it. Two words at the same moment both count, in either order.

use muster_core::names::EnvName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::Phase;
use muster_core::txn::Revision;
use thiserror::Error;

use super::errand::{Decided, Wish};
use super::need::Got;
use crate::operate::{Command, OperateRefused, operate};
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
    pub phase: Phase,
    pub changed: bool,
    pub revision: Revision,
}

/// Says something to a rollout.
#[derive(Clone, Debug)]
pub struct Say {
    pub id: RolloutId,
    pub command: Command,
    pub by: String,
}

impl Wish for Say {
    type Done = Said;
    type Refused = SayRefused;
    /// While a rollout goes on its record is rewritten at each of its steps, and a word may come between two of them again and
    /// again.
    const TRIES: usize = 32;

    fn decide(&mut self, sight: &Sight<'_>, _: Got, unsure: bool) -> Result<Decided<Said>, SayRefused> {
        let (record, at) = sight.fleet.rollouts().get(&self.id).ok_or(SayRefused::Unknown(self.id))?;
        let revision = sight.fleet.revision;
        Ok(match operate(record, &self.command, &self.by, sight)? {
            Some(operated) => {
                let txn = operated.txn(sight.fleet, *at)?;
                Decided::Write(txn, Said { phase: operated.record.phase, changed: true, revision })
            }
            // A try whose answer was lost was carried out.
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
