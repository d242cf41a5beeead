//! Why something cannot be done with a rollout, as an answer.

use muster_rollout::executor::{BeginRefused, NoWayBack, SayRefused};
use muster_rollout::operate::OperateRefused;
use muster_rollout::plan::PlanError;
use muster_rollout::start::StartRefused;
use muster_wire::problem::{Code, Problem};

use super::unknown;
use crate::api::answer::{Refusal, chain};
use crate::rollouts::asked::{BeginError, WordError};
use crate::rollouts::bring::Lacking;
use crate::rollouts::plans::KeepPlanError;

impl From<Lacking> for Refusal {
    fn from(error: Lacking) -> Self {
        let text = chain(&error);
        match error {
            Lacking::Env(env) => Refusal::unknown_env(env.as_str(), &[]),
            Lacking::Design(error) => error.into(),
            Lacking::Keep(KeepPlanError::Io(ref error)) if error.kind() == std::io::ErrorKind::StorageFull => {
                let text = "no space left to keep the plan; nothing was begun";
                Refusal(Problem::new(Code::StoreFull, text).hint("make room on the server's disk"))
            }
            Lacking::Keep(_) | Lacking::Plan(_) => Refusal(Problem::new(Code::StoreUnavailable, text)),
            Lacking::Store(error) => error.into(),
            Lacking::StaleView(behind) => behind.into(),
        }
    }
}

impl From<BeginError> for Refusal {
    fn from(error: BeginError) -> Self {
        match error {
            BeginError::Refused(error) => error.into(),
            BeginError::Lacking(error) => error.into(),
        }
    }
}

impl From<BeginRefused> for Refusal {
    fn from(error: BeginRefused) -> Self {
        let text = chain(&error);
        let refused = |code| Problem::new(code, text.clone());
        match error {
            BeginRefused::NoPlan(error) | BeginRefused::NoWayBack(NoWayBack::NoPlan(error)) => error.into(),
            BeginRefused::ForeignCommand { .. } => {
                let hint = "write it into `rollout:` of the environment file and apply that, or ask with `http`";
                Refusal(refused(Code::InvalidRequest).hint(hint))
            }
            BeginRefused::OfAnother(_) => Refusal(refused(Code::InvalidRequest).hint("make a plan for this one")),
            BeginRefused::Outdated(_) => {
                Refusal(refused(Code::PlanOutdated).hint("plan again, look at it, and start that"))
            }
            BeginRefused::Refused(error) => error.into(),
            BeginRefused::NoWayBack(NoWayBack::NothingToGoBackTo { .. }) => {
                let hint = "start a rollout to the version that you want, with --supersede and --allow-older";
                Refusal(refused(Code::RolloutRefused).hint(hint))
            }
            BeginRefused::NoWayBack(NoWayBack::Unknown(id)) => unknown(id),
            BeginRefused::Contended(_) => {
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
            | StartRefused::IsRollback { .. }
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
            WordError::Refused(SayRefused::Unknown(id)) => unknown(id),
            WordError::Refused(SayRefused::Refused(OperateRefused::UnknownNode { .. })) => {
                Refusal(Problem::new(Code::UnknownNode, text))
            }
            WordError::Refused(SayRefused::Refused(
                OperateRefused::Over { .. }
                | OperateRefused::NothingToPromote { .. }
                | OperateRefused::AtOnce { .. }
                | OperateRefused::NotFailed { .. }
                | OperateRefused::NobodyFailed { .. }
                | OperateRefused::NoPlan { .. }
                | OperateRefused::HoldsNoSlot { .. }
                | OperateRefused::TooMany { .. },
            )) => Refusal(Problem::new(Code::RolloutRefused, text).hint("`muster rollout status` shows how it stands")),
            WordError::Refused(SayRefused::Unwritable(_)) => Refusal(Problem::new(Code::Internal, text)),
            WordError::Refused(SayRefused::Contended(_)) => {
                Refusal(Problem::new(Code::Conflict, text).hint("say it again"))
            }
            WordError::Lacking(error) => error.into(),
        }
    }
}
