//! Why something cannot be done with a rollout, as an answer.

use muster_rollout::operate::OperateRefused;
use muster_rollout::plan::PlanError;
use muster_rollout::start::StartRefused;
use muster_wire::problem::{Code, Problem};

use super::unknown;
use crate::api::answer::{Refusal, chain};
use crate::rollouts::begin::BeginError;
use crate::rollouts::plans::KeepPlanError;
use crate::rollouts::word::WordError;

impl From<BeginError> for Refusal {
    fn from(error: BeginError) -> Self {
        let text = chain(&error);
        let refused = |code| Problem::new(code, text.clone());
        match error {
            BeginError::Gone(env) => Refusal::unknown_env(env.as_str(), &[]),
            BeginError::Design(error) => error.into(),
            BeginError::NoPlan(error) => error.into(),
            BeginError::ForeignCommand { .. } => {
                let hint = "write it into `rollout:` of the environment file and apply that, or ask with `http`";
                Refusal(refused(Code::InvalidRequest).hint(hint))
            }
            BeginError::OfAnother(_) => Refusal(refused(Code::InvalidRequest).hint("make a plan for this one")),
            BeginError::Outdated(_) => {
                Refusal(refused(Code::PlanOutdated).hint("plan again, look at it, and start that"))
            }
            BeginError::Refused(error) => error.into(),
            BeginError::NothingToGoBackTo { .. } => {
                let hint = "start a rollout to the version that you want, with --supersede and --allow-older";
                Refusal(refused(Code::RolloutRefused).hint(hint))
            }
            BeginError::Unknown(id) => unknown(id),
            BeginError::Keep(KeepPlanError::Io(ref error)) if error.kind() == std::io::ErrorKind::StorageFull => {
                let text = "no space left to keep the plan; nothing was begun";
                Refusal(Problem::new(Code::StoreFull, text).hint("make room on the server's disk"))
            }
            BeginError::Keep(_) => Refusal(refused(Code::StoreUnavailable)),
            BeginError::Store(error) => error.into(),
            BeginError::Behind(behind) => behind.into(),
            BeginError::Contended(_) => {
                Refusal(refused(Code::Conflict).hint("look at `muster rollout status`, then decide again"))
            }
        }
    }
}

impl From<PlanError> for Refusal {
    fn from(error: PlanError) -> Self {
        let text = chain(&error);
        let problem = |code| Problem::new(code, text.clone());
        match error {
            PlanError::UnknownRelease { .. } => {
                Refusal(problem(Code::UnknownVersion).hint("`muster release list` shows those that are there"))
            }
            PlanError::OlderRelease { .. } => {
                let hint = "nodes do not go back by themselves; if it is meant, say so with --allow-older";
                Refusal(problem(Code::OlderRelease).hint(hint))
            }
            PlanError::BeingRestored { .. } | PlanError::Unreadable => Refusal(problem(Code::CannotTell)),
            PlanError::BeingDestroyed { .. } => Refusal(problem(Code::Destroying)),
            PlanError::Cycle(_)
            | PlanError::UnknownRole { .. }
            | PlanError::Strategy(_)
            | PlanError::TooManyWaves { .. }
            | PlanError::NoNodes => Refusal(problem(Code::InvalidRequest)),
        }
    }
}

impl From<StartRefused> for Refusal {
    fn from(error: StartRefused) -> Self {
        let text = chain(&error);
        let problem = |code| Refusal(Problem::new(code, text.clone()));
        match error {
            StartRefused::Open { .. } => problem(Code::RolloutUnderWay),
            StartRefused::Destroying => problem(Code::Destroying),
            StartRefused::Restoring | StartRefused::Unreadable => problem(Code::CannotTell),
            StartRefused::NoRelease { .. } => problem(Code::UnknownVersion),
            StartRefused::AnotherRelease { .. } => problem(Code::PlanOutdated),
            StartRefused::IsWayBack { .. }
            | StartRefused::NotGoverning { .. }
            | StartRefused::RolledBackAlready { .. } => problem(Code::RolloutRefused),
            StartRefused::Unwritable(_) => problem(Code::Internal),
        }
    }
}

impl From<WordError> for Refusal {
    fn from(error: WordError) -> Self {
        let text = chain(&error);
        match error {
            WordError::Unknown(id) => unknown(id),
            WordError::Refused(OperateRefused::UnknownNode { .. }) => Refusal(Problem::new(Code::UnknownNode, text)),
            WordError::Refused(
                OperateRefused::Over { .. }
                | OperateRefused::NothingToPromote { .. }
                | OperateRefused::AtOnce { .. }
                | OperateRefused::NotFailed { .. }
                | OperateRefused::NobodyFailed { .. }
                | OperateRefused::HoldsNoSlot { .. }
                | OperateRefused::TooMany { .. },
            ) => Refusal(Problem::new(Code::RolloutRefused, text).hint("`muster rollout status` shows how it stands")),
            WordError::Unwritable(_) => Refusal(Problem::new(Code::Internal, text)),
            WordError::Failed(error) => error.into(),
            WordError::Contended(_) => Refusal(Problem::new(Code::Conflict, text).hint("say it again")),
        }
    }
}
