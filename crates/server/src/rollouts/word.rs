//! An operator's word to a rollout. It rewrites the record, as every step does, under its revision: once it is acknowledged,
//! nothing follows that was decided before it. Whoever was faster has been heard: it is decided again on what is there then,
//! so two words at the same moment both count, in either order.

use muster_core::names::EnvName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::Phase;
use muster_core::txn::Revision;
use muster_rollout::operate::{Command, OperateRefused, operate};
use thiserror::Error;

use super::begin::{BeginError, ask, commit};
use super::sight::with_sight;
use crate::App;

/// While a rollout goes on its record is rewritten at each of its steps, and a word may come between two of them again and
/// again.
const TRIES: usize = 32;

#[derive(Debug, Error)]
pub(crate) enum WordError {
    #[error("there is no rollout {0}")]
    Unknown(RolloutId),
    #[error(transparent)]
    Refused(#[from] OperateRefused),
    #[error("what is to be stored cannot be written as JSON")]
    Unwritable(#[from] serde_json::Error),
    #[error(transparent)]
    Failed(#[from] BeginError),
    #[error("rollout {0} is rewritten again and again at the same moment")]
    Contended(RolloutId),
}

/// What became of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) phase: Phase,
    pub(crate) changed: bool,
    pub(crate) revision: Revision,
}

/// Says something to a rollout.
pub(crate) async fn say(
    app: &App,
    env: &EnvName,
    id: RolloutId,
    command: &Command,
    by: &str,
) -> Result<Said, WordError> {
    let mut unsure = false;
    for _ in 0..TRIES {
        let newest = app.newest.revision().await.map_err(BeginError::from)?;
        app.view.reach(newest).await.map_err(BeginError::from)?;
        let decided = ask(app, env, |fleet| {
            let (record, at) = fleet.rollouts().get(&id).ok_or(WordError::Unknown(id))?;
            let Some(operated) = with_sight(app, fleet, |sight| operate(record, command, by, sight))? else {
                let (phase, revision) = (record.phase.clone(), fleet.revision);
                // A try whose answer was lost was carried out.
                return Ok(Err(Said { phase, changed: unsure, revision }));
            };
            Ok::<_, WordError>(Ok((operated.txn(fleet, *at)?, operated.record.phase)))
        })??;
        let (txn, phase) = match decided {
            Ok(change) => change,
            Err(said) => return Ok(said),
        };
        match commit(app, txn).await? {
            Some(revision) => return Ok(Said { phase, changed: true, revision }),
            None => unsure = true,
        }
    }
    Err(WordError::Contended(id))
}
