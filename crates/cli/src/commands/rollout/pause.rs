//! `muster rollout pause` and `muster rollout resume`: stop and continue a rollout.

use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_wire::client::RolloutVerb;
use muster_wire::rollout::OperateRequest;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;
use crate::variables::author;

use super::{RolloutArg, send};

/// Pause a rollout: no node starts the version until it is resumed
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Once the command has returned, no more nodes start the version. Nodes that have started it continue. Pausing \
twice is a no-op.

Exit codes:
  0   paused
  1   refused: there is no rollout, or it has ended
  2   unknown: retry, which is safe

Examples:
  muster rollout pause
  muster rollout pause --reason 'looking at the latency'")]
pub struct PauseArgs {
    /// Reason, shown in the status of the rollout
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    rollout: RolloutArg,
}

/// Resume a paused rollout
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Failures before the resume no longer pause the rollout; new ones do. A gate with an inconclusive result is checked again. \
Resuming a running rollout is a no-op.

Exit codes:
  0   resumed
  1   refused: there is no rollout, or it has ended
  2   unknown: retry, which is safe

Examples:
  muster rollout resume
  muster rollout skip web7 && muster rollout resume")]
pub struct ResumeArgs {
    #[command(flatten)]
    rollout: RolloutArg,
}

pub(in crate::commands) async fn pause(
    args: &PauseArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { reason: args.reason.clone(), by: author(), ..OperateRequest::default() };
    let done = send(&mut session, terminal, args.rollout.selected(), RolloutVerb::Pause, operate).await?;
    terminal.out.answer(&done, |out| match (done.changed, &done.phase) {
        (true, _) => {
            let (id, revision) = (done.id, done.revision);
            out.line(format_args!("rollout {id} is paused: no more nodes start the version (revision {revision})"));
        }
        (false, RolloutPhase::Paused { why: PauseReason::Operator { .. } }) => {
            out.line(format_args!("rollout {} was paused already", done.id));
        }
        (false, phase) => out.line(format_args!("rollout {} is {}", done.id, phase.word())),
    });
    terminal.notes.note("continue with `muster rollout resume`, or revert with `muster rollout rollback`");
    Ok(Exit::Yes)
}

pub(in crate::commands) async fn resume(
    args: &ResumeArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { by: author(), ..OperateRequest::default() };
    let done = send(&mut session, terminal, args.rollout.selected(), RolloutVerb::Resume, operate).await?;
    terminal.out.answer(&done, |out| match done.changed {
        true => out.line(format_args!("rollout {} is resumed (revision {})", done.id, done.revision)),
        false => out.line(format_args!("rollout {} was not paused", done.id)),
    });
    terminal.notes.note("follow the rollout: muster rollout status --watch");
    Ok(Exit::Yes)
}
