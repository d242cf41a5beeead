//! What cannot be had without hands, and what was brought.

use std::sync::Arc;

use muster_core::names::Version;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::progress::Progress;
use muster_core::rollout::record::{PauseReason, RolloutRecord};
use muster_core::txn::{Revision, Txn};

use super::way::Way;
use crate::step::{Change, Indexed};

/// How it goes on.
#[derive(Clone, Debug)]
pub enum Next<W, D> {
    Needs(Need),
    /// To be committed: what becomes of it is brought as [`Got::Wrote`].
    Commit(W),
    Done(D),
}

/// Whoever cannot bring it drops what needs it, and looks again later.
#[derive(Clone, Debug)]
pub enum Need {
    /// How far the store is: [`Got::Newest`].
    Newest,
    /// The view shows at least this: [`Got::Viewed`].
    View(Revision),
    /// The plan of this name, or why there is none: [`Got::Plan`].
    Plan(String),
    /// How the environment wants to be moved: [`Got::Way`].
    Way {
        /// Whether nothing can be done without it. If it can, one that cannot be read is as good as none.
        required: bool,
    },
    /// A plan is kept for good: [`Got::Kept`]. It comes before the record that names it.
    Keep(Arc<RolloutPlan>),
    /// So is what became of a rollout: [`Got::OutcomeKept`].
    KeepOutcome(Box<Progress>),
}

/// What was brought.
#[derive(Clone, Debug)]
pub enum Got {
    /// Nothing was asked for: it begins.
    Nothing,
    Newest(Revision),
    Viewed,
    Plan(Result<Arc<Indexed>, String>),
    Way(Box<Way>),
    /// Under this name.
    Kept(String),
    /// None if it cannot be: nothing waits for that.
    OutcomeKept(Option<String>),
    Wrote(Wrote),
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrote {
    Committed(Revision),
    /// What it was decided on had changed, at this revision at the latest.
    Refused(Revision),
    /// Somebody else holds the controller.
    Deposed,
    /// No store takes it, however often it is asked: why.
    Unwritable(String),
    /// It may have been carried out, and may still be.
    Unknown,
}

/// A write of the controller. Whoever commits it adds the guard of its tenure.
#[derive(Clone, Debug)]
pub struct Write {
    pub txn: Txn,
    /// For whoever tells of it.
    pub what: Written,
}

#[derive(Clone, Debug)]
pub enum Written {
    Step {
        before: Box<RolloutRecord>,
        change: Box<Change>,
    },
    /// A rollout has failed, and another one goes back from it.
    Back {
        from: RolloutId,
        rollout: RolloutId,
        to: Version,
        why: PauseReason,
    },
    /// What became of a rollout is kept.
    Outcome {
        rollout: RolloutId,
    },
}
