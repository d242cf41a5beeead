//! A version that a node goes back from by itself, unless a server takes a report of it in time: pure.
//!
//! A release may cut the node off from everybody who could help it: a firewall, a route, a certificate. So a desired state may
//! ask for a confirmation (`confirm_within`). The one that is tried is kept in the ledger, with what the node ran before; it is
//! confirmed by the first report of it that a server takes. When none is, the node gives the generation up: from then on it
//! runs what it ran before in place of it, until there is a newer generation.
//!
//! A generation is confirmed once. A server that is away later, for however long, makes nobody go back.

use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use muster_core::names::{RunId, Version};
use muster_core::report::{Outcome, RunResult};
use muster_core::txn::Generation;
use muster_wire::sync::DesiredState;

use crate::queue::server_time::{Here, Reading};

/// How long an agent that has just started tries to report before it goes back, though the time is over: it may have been
/// away for all of it, with a machine that was restarted for example. It is what finding a server takes if the first ones
/// that it knows are frozen.
pub const RESTART_PATIENCE: Duration = Duration::from_secs(30);

/// A desired state that is tried, and how far that has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    pub generation: Generation,
    pub version: Version,
    pub within: SignedDuration,
    /// What the node goes back to: the last release that it was brought to before, and that was not itself on trial. None on
    /// a node that never ran another.
    pub before: Option<DesiredState>,
    pub stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Stage {
    /// Nothing of it was applied that a server does not know of.
    Begun,
    /// It was applied, and no server has taken a report of that.
    Unconfirmed {
        run: RunId,
        /// The applier ended well. One that failed may have cut the node off as well; but that a server knows of it
        /// confirms nothing, since the whole is still to come.
        whole: bool,
        /// When the applier ended.
        since: Reading,
    },
    /// A server has taken a report of it.
    Confirmed,
    /// The node goes back, or has.
    GivenUp,
    /// It would, and cannot.
    Stays {
        problem: String,
        /// Whether a report has said so.
        told: bool,
    },
}

impl Trial {
    /// The trial that a run of `desired` begins or goes on with. `applied` is what the node was last brought to.
    pub fn of(desired: &DesiredState, trial: Option<&Trial>, applied: Option<&DesiredState>) -> Option<Trial> {
        if let Some(trial) = trial.filter(|trial| trial.generation == desired.generation) {
            return Some(trial.clone());
        }
        let within = desired.confirm_within?;
        let older = trial.and_then(|trial| trial.before.as_ref());
        let before = match trial.map(|trial| &trial.stage) {
            // What was not confirmed is nothing to go back to.
            Some(Stage::Unconfirmed { .. } | Stage::GivenUp) => older,
            Some(Stage::Begun | Stage::Confirmed | Stage::Stays { .. }) | None => applied.or(older),
        };
        // Going back to the same release would change nothing.
        if before.is_some_and(|before| before.digest == desired.digest) {
            return None;
        }
        let (generation, version) = (desired.generation, desired.version.clone());
        Some(Self { generation, version, within, before: before.cloned(), stage: Stage::Begun })
    }

    /// The applier has ended: well, or with something changed all the same. The time begins when it first does; and anew
    /// when it ends well for the first time.
    pub fn applied(&mut self, run: &RunId, whole: bool, now: &Here) {
        match &self.stage {
            Stage::Begun => {}
            Stage::Unconfirmed { whole: false, .. } if whole => {}
            Stage::Unconfirmed { .. } | Stage::Confirmed | Stage::GivenUp | Stage::Stays { .. } => return,
        }
        self.stage = Stage::Unconfirmed { run: run.clone(), whole, since: Reading::of(now) };
    }

    /// A server has taken a report at this generation. Whether that changes anything.
    pub fn taken(&mut self, of: &RunId, outcome: Outcome) -> bool {
        let Stage::Unconfirmed { run, .. } = &self.stage else { return false };
        self.stage = match outcome {
            Outcome::Configured(RunResult::Unchanged | RunResult::Changed) | Outcome::Validated(_) => Stage::Confirmed,
            Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Previewed(_) if run == of => {
                Stage::Begun
            }
            Outcome::Configured(RunResult::Failed | RunResult::Pending) | Outcome::Previewed(_) => return false,
        };
        true
    }

    /// How long a server still has to take a report; none if nobody waits for that.
    pub fn left(&self, now: &Here) -> Option<Duration> {
        match &self.stage {
            Stage::Unconfirmed { since, .. } => Some(self.within().saturating_sub(since.passed(now))),
            Stage::Begun | Stage::Confirmed | Stage::GivenUp | Stage::Stays { .. } => None,
        }
    }

    pub fn within(&self) -> Duration {
        Duration::try_from(self.within).unwrap_or_default()
    }

    pub fn is_unconfirmed(&self) -> bool {
        match self.stage {
            Stage::Unconfirmed { .. } => true,
            Stage::Begun | Stage::Confirmed | Stage::GivenUp | Stage::Stays { .. } => false,
        }
    }

    /// Whether a report of it that is taken may matter: nobody forgets such a report before that is written down.
    pub fn is_open(&self) -> bool {
        match self.stage {
            Stage::Begun | Stage::Unconfirmed { .. } => true,
            Stage::Confirmed | Stage::GivenUp | Stage::Stays { .. } => false,
        }
    }

    /// What the node runs in place of the generation that it has given up. It answers that generation, so that whoever asked
    /// for it sees that it went elsewhere.
    pub fn instead(&self) -> Option<DesiredState> {
        match self.stage {
            Stage::GivenUp => self.before.as_ref().map(|before| self.back_to(before)),
            Stage::Begun | Stage::Unconfirmed { .. } | Stage::Confirmed | Stage::Stays { .. } => None,
        }
    }

    /// The way back is allowed by whoever asked for the trial, and nobody has to confirm it.
    pub fn back_to(&self, before: &DesiredState) -> DesiredState {
        DesiredState { generation: self.generation, allow_older: true, confirm_within: None, ..before.clone() }
    }
}

#[cfg(test)]
mod tests;
