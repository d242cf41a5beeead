//! Converts rollout errors to HTTP error responses (RFC 9457 problems).

use muster_rollout::command::CommandRefused;
use muster_rollout::executor::{OperatorCommandError, RollbackPlanError, StartRolloutError};
use muster_rollout::plan::PlanError;
use muster_rollout::start::StartRefused;
use muster_wire::problem::{Problem, ProblemCode};

use crate::api::error::{ApiError, chain};
use crate::api::rollouts::unknown_rollout;
use crate::rollouts::host::{BeginError, CommandError, HostError};
use crate::rollouts::plans::KeepPlanError;

impl From<HostError> for ApiError {
    fn from(error: HostError) -> Self {
        let text = chain(&error);
        match error {
            HostError::Env(env) => ApiError::unknown_env(env.as_str(), &[]),
            HostError::Design(error) => error.into(),
            HostError::Keep(KeepPlanError::Io(ref error)) if error.kind() == std::io::ErrorKind::StorageFull => {
                let text = "no space left to store the plan; nothing was started";
                ApiError(Problem::new(ProblemCode::StoreFull, text).hint("free space on the server's disk"))
            }
            HostError::Keep(_) | HostError::Plan(_) => ApiError(Problem::new(ProblemCode::StoreUnavailable, text)),
            HostError::Store(error) => error.into(),
            HostError::StaleView(behind) => behind.into(),
        }
    }
}

impl From<BeginError> for ApiError {
    fn from(error: BeginError) -> Self {
        match error {
            BeginError::Refused(error) => error.into(),
            BeginError::HostError(error) => error.into(),
        }
    }
}

impl From<StartRolloutError> for ApiError {
    fn from(error: StartRolloutError) -> Self {
        let text = chain(&error);
        let refused = |code| Problem::new(code, text.clone());
        match error {
            StartRolloutError::Plan(error) | StartRolloutError::RollbackPlan(RollbackPlanError::Plan(error)) => {
                error.into()
            }
            StartRolloutError::ForeignCommand { .. } => {
                let hint = "add the command to `rollout:` of the environment file and apply it, or use an `http` check";
                ApiError(refused(ProblemCode::InvalidRequest).hint(hint))
            }
            StartRolloutError::OtherEnv(_) => {
                ApiError(refused(ProblemCode::InvalidRequest).hint("make a plan for this environment"))
            }
            StartRolloutError::StalePlan(_) => {
                let hint = "run `muster rollout plan` again, review the plan, and start it";
                ApiError(refused(ProblemCode::PlanOutdated).hint(hint))
            }
            StartRolloutError::Refused(error) => error.into(),
            StartRolloutError::RollbackPlan(RollbackPlanError::NoStableVersion { .. }) => {
                let hint = "start a rollout to the version that you want, with --supersede and --allow-older";
                ApiError(refused(ProblemCode::RolloutRefused).hint(hint))
            }
            StartRolloutError::RollbackPlan(RollbackPlanError::UnknownRollout(id)) => unknown_rollout(id),
            StartRolloutError::Contended(_) => {
                ApiError(refused(ProblemCode::Conflict).hint("check `muster rollout status`, then decide again"))
            }
        }
    }
}

impl From<PlanError> for ApiError {
    fn from(error: PlanError) -> Self {
        let text = chain(&error);
        let problem = |code| Problem::new(code, text.clone());
        match error {
            PlanError::UnknownRelease { .. } => {
                ApiError(problem(ProblemCode::UnknownVersion).hint("`muster release list` shows those that are there"))
            }
            PlanError::OlderRelease { .. } => {
                let hint = "nodes do not downgrade by themselves; use --allow-older if that is intended";
                ApiError(problem(ProblemCode::OlderRelease).hint(hint))
            }
            PlanError::BeingRestored { .. } | PlanError::Unreadable => ApiError(problem(ProblemCode::CannotTell)),
            PlanError::BeingDestroyed { .. } => ApiError(problem(ProblemCode::Destroying)),
            PlanError::Cycle(_)
            | PlanError::UnknownRole { .. }
            | PlanError::Strategy(_)
            | PlanError::TooManyWaves { .. }
            | PlanError::NoNodes => ApiError(problem(ProblemCode::InvalidRequest)),
        }
    }
}

impl From<StartRefused> for ApiError {
    fn from(error: StartRefused) -> Self {
        let text = chain(&error);
        let problem = |code| ApiError(Problem::new(code, text.clone()));
        match error {
            StartRefused::Open { .. } => problem(ProblemCode::RolloutUnderWay),
            StartRefused::Destroying => problem(ProblemCode::Destroying),
            StartRefused::Restoring | StartRefused::Unreadable => problem(ProblemCode::CannotTell),
            StartRefused::NoRelease { .. } => problem(ProblemCode::UnknownVersion),
            StartRefused::ReleaseChanged { .. } => problem(ProblemCode::PlanOutdated),
            StartRefused::RollbackPlan { .. }
            | StartRefused::IsRollback { .. }
            | StartRefused::NotActive { .. }
            | StartRefused::AlreadyRolledBack { .. } => problem(ProblemCode::RolloutRefused),
            StartRefused::Serialize(_) => problem(ProblemCode::Internal),
        }
    }
}

impl From<CommandError> for ApiError {
    fn from(error: CommandError) -> Self {
        let text = chain(&error);
        match error {
            CommandError::Refused(OperatorCommandError::UnknownRollout(id)) => unknown_rollout(id),
            CommandError::Refused(OperatorCommandError::Refused(CommandRefused::UnknownNode { .. })) => {
                ApiError(Problem::new(ProblemCode::UnknownNode, text))
            }
            CommandError::Refused(OperatorCommandError::Refused(
                CommandRefused::RolloutEnded { .. }
                | CommandRefused::NothingToPromote { .. }
                | CommandRefused::AtOnce { .. }
                | CommandRefused::NotFailed { .. }
                | CommandRefused::NoFailedNode { .. }
                | CommandRefused::NoPlan { .. }
                | CommandRefused::HoldsNoSlot { .. }
                | CommandRefused::TooManyNodes { .. },
            )) => ApiError(
                Problem::new(ProblemCode::RolloutRefused, text).hint("`muster rollout status` shows its state"),
            ),
            CommandError::Refused(OperatorCommandError::Serialize(_)) => {
                ApiError(Problem::new(ProblemCode::Internal, text))
            }
            CommandError::Refused(OperatorCommandError::Contended(_)) => {
                ApiError(Problem::new(ProblemCode::Conflict, text).hint("retry"))
            }
            CommandError::HostError(error) => error.into(),
        }
    }
}
