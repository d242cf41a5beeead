//! `muster rollout status`: shows the progress of a rollout, and its outcome as an exit code.

use jiff::SignedDuration;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_wire::client::StatusQuery;

use crate::args::{Globals, OutputFormat};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;

use super::{id_arg, select, status_view, watch};

/// Show the progress of a rollout: waves, roles, deadlines, and the reasons for waiting
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
DESIRED is the number of nodes of the role in the wave, STARTED the number that have started the version, APPLYING the \
number in progress, HEALTHY and FAILED the results. DEADLINE is the time left for the next of them.

--watch follows the rollout until it ends. On a terminal the table is redrawn; in a pipe there is one line per change. A \
pause by an operator, a closed window and a missing promotion do not end it. If the rollout is rolled back, the rollback is \
followed. If the server becomes unreachable, the command waits for it. With -o json or yaml only the final status is printed.

Exit codes:
  0   completed; without --watch also: in progress
  1   failed: paused because of failures, aborted, rolled back or superseded
  2   unknown: paused because of an inconclusive check or missing progress, not ended before --timeout, no such rollout,
      or the server cannot be reached
  130 with --watch: Ctrl-C was pressed; the rollout continues

Examples:
  muster rollout status
  muster rollout status 7
  muster rollout status --watch
  muster rollout status 7 --watch --timeout 2h || muster rollout rollback --id 7
  muster rollout status -o json | jq .counts")]
pub struct Args {
    /// Number of the rollout [default: the last one that was started]
    #[arg(value_parser = id_arg)]
    id: Option<RolloutId>,
    /// Follow the rollout until it ends
    #[arg(long)]
    watch: bool,
    /// Maximum time to follow the rollout, such as 90s or 1h30m [default: until it ends]
    #[arg(long, requires = "watch", value_name = "DURATION", value_parser = crate::args::timeout_arg)]
    timeout: Option<SignedDuration>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let which = select(args.id);
    if args.watch {
        return watch::follow(&mut session, which, args.timeout, globals.output, terminal).await;
    }
    // The table has no single nodes.
    let query = StatusQuery { numbers: globals.output == OutputFormat::Table, ..StatusQuery::default() };
    let status = session.map_err(session.client().rollout(&session.env, which, query).await)?;
    terminal.out.answer(&status, |out| status_view::show(&session.env, &status, out));
    Ok(RolloutOutcome::of_phase(&status.record.phase).exit())
}

/// The outcome of a rollout for a command that waits for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RolloutOutcome {
    /// It continues by itself, or when the operator who paused it resumes it.
    InProgress,
    Completed,
    /// It failed, or was aborted or superseded.
    Failed,
    /// It is paused, and its result is unknown.
    CannotTell,
    /// This rollout rolls it back.
    RolledBack(RolloutId),
}

impl RolloutOutcome {
    pub(super) fn of_phase(phase: &RolloutPhase) -> Self {
        match phase {
            RolloutPhase::Running => Self::InProgress,
            // The operator resumes the rollout. With `over` it was paused for another reason before, which decides.
            RolloutPhase::Paused { why: PauseReason::Operator { over: None, .. } } => Self::InProgress,
            RolloutPhase::Paused { why } if why.is_failure() => Self::Failed,
            RolloutPhase::Paused { .. } => Self::CannotTell,
            RolloutPhase::Completed => Self::Completed,
            RolloutPhase::Aborted { .. } | RolloutPhase::Superseded { .. } => Self::Failed,
            RolloutPhase::RolledBack { by, .. } => Self::RolledBack(*by),
        }
    }

    /// The exit code of a single request: a rollout in progress counts as success.
    pub(super) fn exit(self) -> Exit {
        match self {
            RolloutOutcome::InProgress | RolloutOutcome::Completed => Exit::Yes,
            RolloutOutcome::Failed | RolloutOutcome::RolledBack(_) => Exit::No,
            RolloutOutcome::CannotTell => Exit::CannotTell,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use muster_core::rollout::record::Threshold;

    use super::*;

    #[test]
    fn each_phase_has_its_exit_code() {
        let failures =
            || PauseReason::Failures { threshold: Threshold::Canary, failed: 1, tolerated: 0, nodes: Vec::new() };
        let text = || (String::from("door"), String::from("no answer"));
        let paused = |why| RolloutPhase::Paused { why };
        let held = |over| PauseReason::Operator { by: "jo".into(), reason: String::new(), over: Some(Box::new(over)) };
        let (check, message) = text();
        let (other_check, other_message) = text();
        let table = [
            (RolloutPhase::Running, RolloutOutcome::InProgress, 0),
            (paused(PauseReason::by_operator("jo", "")), RolloutOutcome::InProgress, 0),
            (paused(held(failures())), RolloutOutcome::Failed, 1),
            (paused(held(PauseReason::Blocked { problem: String::new() })), RolloutOutcome::CannotTell, 2),
            (paused(failures()), RolloutOutcome::Failed, 1),
            (paused(PauseReason::GateFailed { check, message }), RolloutOutcome::Failed, 1),
            (paused(PauseReason::NoRollbackTarget { why: Box::new(failures()) }), RolloutOutcome::Failed, 1),
            (
                paused(PauseReason::GateInconclusive { check: other_check, message: other_message }),
                RolloutOutcome::CannotTell,
                2,
            ),
            (paused(PauseReason::NoProgress { since: Timestamp::UNIX_EPOCH }), RolloutOutcome::CannotTell, 2),
            (paused(PauseReason::Blocked { problem: String::new() }), RolloutOutcome::CannotTell, 2),
            (RolloutPhase::Completed, RolloutOutcome::Completed, 0),
            (RolloutPhase::Aborted { by: "jo".into(), reason: String::new() }, RolloutOutcome::Failed, 1),
            (RolloutPhase::Superseded { by: RolloutId(3) }, RolloutOutcome::Failed, 1),
            (
                RolloutPhase::RolledBack { by: RolloutId(3), why: failures() },
                RolloutOutcome::RolledBack(RolloutId(3)),
                1,
            ),
        ];
        for (phase, outcome, code) in table {
            let found = RolloutOutcome::of_phase(&phase);
            assert_eq!((found, found.exit().code()), (outcome, code), "{phase:?}");
        }
    }
}
