//! The executor's boundary: requests for IO, their results, and the transactions that the host commits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::design::DesignRevision;
use muster_core::names::{Role, Version};
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::progress::Progress;
use muster_core::rollout::record::{PauseReason, RolloutRecord};
use muster_core::rollout::strategy::{GateCheck, GateCheckKind, Strategy};
use muster_core::txn::{Revision, Txn, ValuesBefore};

use super::operator_command::StartRolloutError;
use crate::step::{IndexedPlan, RolloutChange};

/// The next action of the host: perform IO, commit `W`, or stop with the result `D`.
#[derive(Clone, Debug)]
pub enum NextAction<W, D> {
    Io(IoRequest),
    /// Its result is passed as [`IoResult::Commit`].
    Commit(W),
    Done(D),
}

/// A read or write that the host performs. If the IO fails, the host drops the executor's pending work and reconciles later.
#[derive(Clone, Debug)]
pub enum IoRequest {
    /// Read the newest revision of the store: [`IoResult::StoreRevision`].
    StoreRevision,
    /// Wait until the view has reached this revision: [`IoResult::ViewReached`].
    AwaitView(Revision),
    /// Read the plan with this digest: [`IoResult::Plan`].
    LoadPlan(String),
    /// Read the environment's rollout configuration: [`IoResult::Config`].
    LoadConfig {
        /// Without it nothing can be done. Otherwise an unreadable configuration counts as an empty one.
        required: bool,
    },
    /// Store a plan permanently, before the record that names it: [`IoResult::PlanSaved`].
    SavePlan(Arc<RolloutPlan>),
    /// Store the final progress of a rollout: [`IoResult::OutcomeSaved`].
    SaveOutcome(Box<Progress>),
}

/// The result of an [`IoRequest`] or of a commit.
#[derive(Clone, Debug)]
pub enum IoResult {
    /// No IO preceded: start from the beginning.
    Start,
    StoreRevision(Revision),
    ViewReached,
    /// The plan, or the reason why it cannot be read.
    Plan(Result<Arc<IndexedPlan>, String>),
    Config(Box<RolloutConfig>),
    /// The digest of the stored plan.
    PlanSaved(String),
    /// The name of the stored outcome; none if it cannot be stored now.
    OutcomeSaved(Option<String>),
    Commit(CommitResult),
}

/// The result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitResult {
    Committed(Revision),
    /// A guard failed: its key had changed by this revision.
    Conflict(Revision),
    /// Another replica holds the controller.
    LockLost,
    /// No store accepts the transaction, however often it is retried.
    Invalid(String),
    /// It may have been committed, or may be later.
    Unknown,
}

/// A write of the rollout controller. The host adds the guard of its controller lock.
#[derive(Clone, Debug)]
pub struct ControllerWrite {
    pub txn: Txn,
    /// Values that the keys have before it if its guards hold, for the audit. None: the host reads them.
    pub before: Option<ValuesBefore>,
    /// For the log.
    pub kind: WriteKind,
}

#[derive(Clone, Debug)]
pub enum WriteKind {
    Step {
        before: Box<RolloutRecord>,
        change: Arc<RolloutChange>,
    },
    /// Rollout `rollout` starts, which rolls the failed rollout `from` back.
    Rollback {
        from: RolloutId,
        rollout: RolloutId,
        to: Version,
        why: PauseReason,
    },
    /// The outcome of an ended rollout was stored, and its record names it.
    Outcome {
        rollout: RolloutId,
    },
}

/// The rollout settings of an environment's applied design. Without a design there is no order and no strategy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutConfig {
    /// None if the environment file has no `rollout` section.
    pub strategy: Option<Strategy>,
    /// The roles that each role comes after.
    pub after: BTreeMap<Role, BTreeSet<Role>>,
    /// The design revision that these settings are from.
    pub design: Option<DesignRevision>,
}

/// Refuses a strategy with a gate command that is not in the environment file. The server runs these commands with its own
/// rights, and only the environment file is reviewed before it is applied.
pub fn check_gate_commands(strategy: &Strategy, config: &RolloutConfig) -> Result<(), StartRolloutError> {
    let reviewed = || config.strategy.iter().flat_map(|own| &own.gate.checks);
    let is_reviewed = |check: &GateCheck| match &check.kind {
        GateCheckKind::Http(_) => true,
        GateCheckKind::Command(_) => reviewed().any(|own| own.kind == check.kind),
    };
    match strategy.gate.checks.iter().find(|check| !is_reviewed(check)) {
        Some(foreign) => Err(StartRolloutError::ForeignCommand { check: foreign.name.clone() }),
        None => Ok(()),
    }
}
