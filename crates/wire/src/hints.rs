//! Suggested next commands for a rollout. Shared by the server, which shows the first one, and the command line, which
//! shows all.

use muster_core::names::Version;
use muster_core::rollout::record::{PauseReason, RolloutPhase};

/// State of a rollout that decides which commands are possible.
#[derive(Clone, Copy, Debug)]
pub struct RolloutSituation<'a> {
    pub phase: &'a RolloutPhase,
    /// All nodes were moved at once: none can be skipped or granted again.
    pub at_once: bool,
    pub waits_for_promotion: bool,
    /// Target of a rollback.
    pub stable: Option<&'a Version>,
    /// Number of failed nodes.
    pub failed: u32,
    /// True if any node was sent to the version. If not, there is nothing to roll back.
    pub sent: bool,
}

/// A command with its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    pub command: String,
    pub does: String,
}

fn hint(command: impl Into<String>, does: impl Into<String>) -> Hint {
    Hint { command: command.into(), does: does.into() }
}

fn promote_anyway() -> Hint {
    hint("muster rollout promote", "continue despite the check")
}

/// Returns whether failed nodes are the reason of the pause. Without them the rollout can continue.
fn is_due_to_failures(why: &PauseReason) -> bool {
    match why {
        PauseReason::Failures { .. } => true,
        PauseReason::NoRollbackTarget { why } => is_due_to_failures(why),
        PauseReason::Operator { .. }
        | PauseReason::GateFailed { .. }
        | PauseReason::GateInconclusive { .. }
        | PauseReason::NoProgress { .. }
        | PauseReason::Blocked { .. } => false,
    }
}

/// Possible next commands, the likeliest first.
pub fn next_commands(situation: RolloutSituation<'_>) -> Vec<Hint> {
    let RolloutSituation { phase, at_once, waits_for_promotion, stable, failed, sent } = situation;
    let back = stable.map(|stable| hint("muster rollout rollback", format!("roll back to {stable}")));
    let leave = || back.clone().unwrap_or_else(|| hint("muster rollout abort", "end it; nodes keep their versions"));
    match phase {
        RolloutPhase::Running if waits_for_promotion => {
            vec![hint("muster rollout promote", "start the next wave"), leave()]
        }
        RolloutPhase::Running => vec![hint("muster rollout status --watch", "follow it to its end")],
        RolloutPhase::Paused { why } => match why {
            PauseReason::Operator { .. } => vec![hint("muster rollout resume", "continue"), leave()],
            PauseReason::Failures { .. } | PauseReason::NoRollbackTarget { .. } if at_once && failed > 0 => {
                vec![hint("muster rollout resume", "continue despite the failures"), leave()]
            }
            PauseReason::Failures { .. } | PauseReason::NoRollbackTarget { .. } if failed > 0 => vec![
                hint("muster rollout retry --failed", "start the failed nodes again and continue"),
                hint("muster rollout skip NODE", "skip a node, then resume"),
                hint("muster rollout resume", "continue despite the failures"),
                leave(),
            ],
            PauseReason::NoProgress { .. } if !at_once && failed > 0 => vec![
                hint("muster rollout retry --failed", "start the failed nodes again and continue"),
                hint("muster rollout resume", "check again"),
                leave(),
            ],
            PauseReason::GateFailed { .. } => {
                let (again, on) = (hint("muster rollout resume", "check again"), promote_anyway());
                match back {
                    Some(back) => vec![back, again, on],
                    None => vec![again, on, leave()],
                }
            }
            PauseReason::GateInconclusive { .. } => {
                vec![hint("muster rollout resume", "check again"), promote_anyway(), leave()]
            }
            why if is_due_to_failures(why) => vec![hint("muster rollout resume", "continue"), leave()],
            PauseReason::Failures { .. }
            | PauseReason::NoRollbackTarget { .. }
            | PauseReason::NoProgress { .. }
            | PauseReason::Blocked { .. } => {
                vec![hint("muster rollout resume", "check again"), leave()]
            }
        },
        // It has ended, so it cannot be aborted.
        RolloutPhase::Aborted { .. } => back
            .filter(|_| sent)
            .into_iter()
            .chain([hint("muster rollout start VERSION", "start another version")])
            .collect(),
        RolloutPhase::RolledBack { by, .. } | RolloutPhase::Superseded { by } => {
            vec![hint(format!("muster rollout status {by}"), "the rollout that replaced it")]
        }
        RolloutPhase::Completed => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use muster_core::rollout::record::Threshold;

    use super::*;

    fn commands(phase: &RolloutPhase, stable: Option<&str>, failed: u32) -> String {
        commands_of(phase, false, stable, failed)
    }

    fn commands_of(phase: &RolloutPhase, at_once: bool, stable: Option<&str>, failed: u32) -> String {
        let stable = stable.map(|stable| Version::new(stable).unwrap());
        let situation = RolloutSituation {
            phase,
            at_once,
            waits_for_promotion: false,
            stable: stable.as_ref(),
            failed,
            sent: true,
        };
        let short = |hint: Hint| hint.command.trim_start_matches("muster rollout ").to_owned();
        next_commands(situation).into_iter().map(short).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn refused_commands_are_not_suggested() {
        let aborted = RolloutPhase::Aborted { by: "jo".into(), reason: String::new() };
        assert_eq!(commands(&aborted, Some("v1"), 0), "rollback, start VERSION");
        assert_eq!(commands(&aborted, None, 0), "start VERSION", "no rollback target");
        let unsent = RolloutSituation {
            phase: &aborted,
            at_once: false,
            waits_for_promotion: false,
            stable: None,
            failed: 0,
            sent: false,
        };
        let stable = Version::new("v1").unwrap();
        let hints = next_commands(RolloutSituation { stable: Some(&stable), ..unsent });
        assert_eq!(hints.len(), 1, "no node was sent: {hints:?}");
        let failures =
            PauseReason::Failures { threshold: Threshold::Canary, failed: 1, tolerated: 0, nodes: Vec::new() };
        let failed = RolloutPhase::Paused { why: failures };
        assert_eq!(commands(&failed, Some("v1"), 1), "retry --failed, skip NODE, resume, rollback");
        assert_eq!(commands(&failed, None, 1), "retry --failed, skip NODE, resume, abort");
        assert_eq!(commands(&failed, None, 0), "resume, abort", "the failed nodes are healthy again");
        let well = RolloutSituation {
            phase: &failed,
            at_once: false,
            waits_for_promotion: false,
            stable: None,
            failed: 0,
            sent: true,
        };
        assert_eq!(next_commands(well)[0].does, "continue");
        let gate =
            RolloutPhase::Paused { why: PauseReason::GateFailed { check: "door".into(), message: "shut".into() } };
        assert_eq!(commands(&gate, Some("v1"), 0), "rollback, resume, promote");
        assert_eq!(commands(&gate, None, 0), "resume, promote, abort");
        let unclear =
            RolloutPhase::Paused { why: PauseReason::GateInconclusive { check: "door".into(), message: "?".into() } };
        assert_eq!(commands(&unclear, Some("v1"), 0), "resume, promote, rollback");
        assert_eq!(commands(&RolloutPhase::Completed, Some("v1"), 0), "");
        let stuck = RolloutPhase::Paused { why: PauseReason::NoProgress { since: jiff::Timestamp::UNIX_EPOCH } };
        for stopped in [&failed, &stuck] {
            assert_eq!(commands_of(stopped, true, Some("v1"), 1), "resume, rollback", "all nodes were moved at once");
            assert_eq!(commands_of(stopped, true, None, 1), "resume, abort");
        }
    }
}
