//! What a person can do with a rollout next. The server names the first of it in a status, the command line all of it: they
//! must not say different things.

use muster_core::names::Version;
use muster_core::rollout::record::{PauseReason, RolloutPhase};

/// How a rollout stands, as far as it decides what can be done with it.
#[derive(Clone, Copy, Debug)]
pub struct RolloutSituation<'a> {
    pub phase: &'a RolloutPhase,
    /// Everybody was told at once: no node can be set aside, or granted once more.
    pub at_once: bool,
    pub waits_for_promotion: bool,
    /// Where a rollback would go to.
    pub stable: Option<&'a Version>,
    /// How many nodes have failed now.
    pub failed: u32,
    /// Whether any node was ever sent to its version: else there is nothing to take back.
    pub sent: bool,
}

/// A command, and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    pub command: String,
    pub does: String,
}

fn hint(command: impl Into<String>, does: impl Into<String>) -> Hint {
    Hint { command: command.into(), does: does.into() }
}

/// Somebody has looked at what a check said.
fn in_spite_of_it() -> Hint {
    hint("muster rollout promote", "go on in spite of the check")
}

/// Whether it was failed nodes that stopped it: without them, nothing is in its way.
fn is_of_failures(why: &PauseReason) -> bool {
    match why {
        PauseReason::Failures { .. } => true,
        PauseReason::NoRollbackTarget { why } => is_of_failures(why),
        PauseReason::Operator { .. }
        | PauseReason::GateFailed { .. }
        | PauseReason::GateInconclusive { .. }
        | PauseReason::NoProgress { .. }
        | PauseReason::Blocked { .. } => false,
    }
}

/// What can be typed next, the likeliest first.
pub fn next_commands(situation: RolloutSituation<'_>) -> Vec<Hint> {
    let RolloutSituation { phase, at_once, waits_for_promotion, stable, failed, sent } = situation;
    let back = stable.map(|stable| hint("muster rollout rollback", format!("go back to {stable}")));
    let leave = || back.clone().unwrap_or_else(|| hint("muster rollout abort", "end it; nodes stay where they are"));
    match phase {
        RolloutPhase::Running if waits_for_promotion => {
            vec![hint("muster rollout promote", "let the next wave begin"), leave()]
        }
        RolloutPhase::Running => vec![hint("muster rollout status --watch", "follow it to its end")],
        RolloutPhase::Paused { why } => match why {
            PauseReason::Operator { .. } => vec![hint("muster rollout resume", "go on"), leave()],
            PauseReason::Failures { .. } | PauseReason::NoRollbackTarget { .. } if at_once && failed > 0 => {
                vec![hint("muster rollout resume", "go on in spite of them"), leave()]
            }
            PauseReason::Failures { .. } | PauseReason::NoRollbackTarget { .. } if failed > 0 => vec![
                hint("muster rollout retry --failed", "grant the failed nodes once more, and go on"),
                hint("muster rollout skip NODE", "set a node aside, then resume"),
                hint("muster rollout resume", "go on in spite of them"),
                leave(),
            ],
            PauseReason::NoProgress { .. } if !at_once && failed > 0 => vec![
                hint("muster rollout retry --failed", "grant the failed nodes once more, and go on"),
                hint("muster rollout resume", "ask and look again"),
                leave(),
            ],
            PauseReason::GateFailed { .. } => {
                let (again, on) = (hint("muster rollout resume", "ask and look again"), in_spite_of_it());
                match back {
                    Some(back) => vec![back, again, on],
                    None => vec![again, on, leave()],
                }
            }
            PauseReason::GateInconclusive { .. } => {
                vec![hint("muster rollout resume", "ask and look again"), in_spite_of_it(), leave()]
            }
            why if is_of_failures(why) => vec![hint("muster rollout resume", "go on"), leave()],
            PauseReason::Failures { .. }
            | PauseReason::NoRollbackTarget { .. }
            | PauseReason::NoProgress { .. }
            | PauseReason::Blocked { .. } => {
                vec![hint("muster rollout resume", "ask and look again"), leave()]
            }
        },
        // It has ended: there is nothing to abort.
        RolloutPhase::Aborted { .. } => {
            back.filter(|_| sent).into_iter().chain([hint("muster rollout start VERSION", "go elsewhere")]).collect()
        }
        RolloutPhase::RolledBack { by, .. } | RolloutPhase::Superseded { by } => {
            vec![hint(format!("muster rollout status {by}"), "the one that took its place")]
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
    fn nothing_is_offered_that_would_be_refused() {
        let aborted = RolloutPhase::Aborted { by: "jo".into(), reason: String::new() };
        assert_eq!(commands(&aborted, Some("v1"), 0), "rollback, start VERSION");
        assert_eq!(commands(&aborted, None, 0), "start VERSION", "it is aborted, and there is no way back");
        let nobody = RolloutSituation {
            phase: &aborted,
            at_once: false,
            waits_for_promotion: false,
            stable: None,
            failed: 0,
            sent: false,
        };
        let stable = Version::new("v1").unwrap();
        let hints = next_commands(RolloutSituation { stable: Some(&stable), ..nobody });
        assert_eq!(hints.len(), 1, "nobody was sent anywhere: {hints:?}");
        let failures =
            PauseReason::Failures { threshold: Threshold::Canary, failed: 1, tolerated: 0, nodes: Vec::new() };
        let failed = RolloutPhase::Paused { why: failures };
        assert_eq!(commands(&failed, Some("v1"), 1), "retry --failed, skip NODE, resume, rollback");
        assert_eq!(commands(&failed, None, 1), "retry --failed, skip NODE, resume, abort");
        assert_eq!(commands(&failed, None, 0), "resume, abort", "whoever had failed is well again");
        let well = RolloutSituation {
            phase: &failed,
            at_once: false,
            waits_for_promotion: false,
            stable: None,
            failed: 0,
            sent: true,
        };
        assert_eq!(next_commands(well)[0].does, "go on");
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
            assert_eq!(commands_of(stopped, true, Some("v1"), 1), "resume, rollback", "everybody was told at once");
            assert_eq!(commands_of(stopped, true, None, 1), "resume, abort");
        }
    }
}
