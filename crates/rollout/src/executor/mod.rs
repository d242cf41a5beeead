//! Drives rollouts without doing IO: names the next read or write, and decides what follows from its result.
//!
//! [`Executor`] reconciles the rollout of one environment, for the replica that holds the rollout controller. A
//! [`RequestExecutor`] carries out one request of an operator: start a rollout, roll one back, or send one a command. Both
//! return an [`IoRequest`] or a transaction to commit, and continue with its [`IoResult`]. The host (a server or the
//! simulator) performs the IO and decides nothing. It may drop either of them at any point: the next reconciliation decides
//! again on the current state of the store.
//!
//! Anything may change between a request and its result. Every decision made before an IO request is checked again after it.

mod io;
mod operator_command;
mod reconcile;
mod rollback;

pub use io::{
    CommitResult, ControllerWrite, IoRequest, IoResult, NextAction, RolloutConfig, WriteKind, check_gate_commands,
};
pub use operator_command::{
    AlreadyAtVersion, CommandOutcome, OperatorCommand, OperatorCommandError, OperatorRequest, RequestDecision,
    RequestExecutor, StartOutcome, StartRollout, StartRolloutError, StartedRollout, resolve_request,
};
pub use reconcile::{Executor, GateRequest, ReconcileResult, unsaved_outcome};
pub use rollback::{RollBackRollout, RollbackPlanError};

use std::time::Duration;

/// The time from a reconciliation to the next one that a change triggers, at least. Nodes of a wave report in bursts, which are
/// handled together.
pub const DEBOUNCE: Duration = Duration::from_millis(25);
/// The delay before the next reconciliation after failed IO.
pub const RETRY_DELAY: Duration = Duration::from_secs(1);

/// An error and its chain of sources on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |cause| cause.source());
    sources.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests;
