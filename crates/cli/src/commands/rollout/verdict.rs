//! What a rollout says by the exit code of whoever follows it.

use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{PauseReason, RolloutPhase};

use crate::exit::Exit;

/// How a rollout stands for somebody who waits for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on by itself, or when a person says so who has it in hand already.
    GoesOn,
    Completed,
    /// It went wrong, or was ended.
    Failed,
    /// It stands still, and nobody can say whether all is well.
    CannotTell,
    /// The other rollout takes back what this one did.
    GoesBack(RolloutId),
}

pub(super) fn judge(phase: &RolloutPhase) -> Verdict {
    match phase {
        RolloutPhase::Running => Verdict::GoesOn,
        // Whoever paused it goes on with it: that is not the end. But what stood still before that did so for a reason.
        RolloutPhase::Paused { why: PauseReason::Operator { over: None, .. } } => Verdict::GoesOn,
        RolloutPhase::Paused { why } if why.is_failure() => Verdict::Failed,
        RolloutPhase::Paused { .. } => Verdict::CannotTell,
        RolloutPhase::Completed => Verdict::Completed,
        RolloutPhase::Aborted { .. } | RolloutPhase::Superseded { .. } => Verdict::Failed,
        RolloutPhase::RolledBack { by, .. } => Verdict::GoesBack(*by),
    }
}

impl Verdict {
    /// The exit code of somebody who asks once: while it goes on, all is well so far.
    pub(super) fn exit(self) -> Exit {
        match self {
            Verdict::GoesOn | Verdict::Completed => Exit::Yes,
            Verdict::Failed | Verdict::GoesBack(_) => Exit::No,
            Verdict::CannotTell => Exit::CannotTell,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_core::rollout::record::Threshold;

    use super::*;

    #[test]
    fn each_end_has_its_exit_code() {
        let failures =
            || PauseReason::Failures { threshold: Threshold::Canary, failed: 1, tolerated: 0, nodes: Vec::new() };
        let text = || (String::from("door"), String::from("no answer"));
        let paused = |why| RolloutPhase::Paused { why };
        let held = |over| PauseReason::Operator { by: "jo".into(), reason: String::new(), over: Some(Box::new(over)) };
        let (check, message) = text();
        let (other_check, other_message) = text();
        let table = [
            (RolloutPhase::Running, Verdict::GoesOn, 0),
            (paused(PauseReason::by_operator("jo", "")), Verdict::GoesOn, 0),
            (paused(held(failures())), Verdict::Failed, 1),
            (paused(held(PauseReason::Blocked { problem: String::new() })), Verdict::CannotTell, 2),
            (paused(failures()), Verdict::Failed, 1),
            (paused(PauseReason::GateFailed { check, message }), Verdict::Failed, 1),
            (paused(PauseReason::NothingToGoBackTo { why: Box::new(failures()) }), Verdict::Failed, 1),
            (
                paused(PauseReason::GateInconclusive { check: other_check, message: other_message }),
                Verdict::CannotTell,
                2,
            ),
            (paused(PauseReason::NoProgress { since: Timestamp::UNIX_EPOCH }), Verdict::CannotTell, 2),
            (paused(PauseReason::Blocked { problem: String::new() }), Verdict::CannotTell, 2),
            (RolloutPhase::Completed, Verdict::Completed, 0),
            (RolloutPhase::Aborted { by: "jo".into(), reason: String::new() }, Verdict::Failed, 1),
            (RolloutPhase::Superseded { by: RolloutId(3) }, Verdict::Failed, 1),
            (RolloutPhase::RolledBack { by: RolloutId(3), why: failures() }, Verdict::GoesBack(RolloutId(3)), 1),
        ];
        for (phase, verdict, code) in table {
            assert_eq!((judge(&phase), judge(&phase).exit().code()), (verdict, code), "{phase:?}");
        }
    }
}
