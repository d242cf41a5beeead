//! `muster rollout pause` and `muster rollout resume`.

use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_wire::client::RolloutVerb;
use muster_wire::rollout::OperateRequest;

use crate::args::Globals;
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

use super::asking::say;
use super::which::Which;

/// Pause a rollout: nothing more is granted until it is resumed
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Once this has been answered, no node is granted anything more. Nodes that were granted the version go on with it. \
Pausing what is paused changes nothing.

Exit codes:
  0   it is paused
  1   refused: there is no rollout, or it has ended
  2   cannot tell: ask again, which is safe

Examples:
  muster rollout pause
  muster rollout pause --reason 'looking at the latency'")]
pub struct PauseArgs {
    /// Why: shown to everybody who looks at the rollout
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    which: Which,
}

/// Let a paused rollout go on
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Whoever resumes a rollout that stopped because of failures has seen them: those no longer stop it, and new ones do. A \
gate that could not say whether all is well is asked again. Resuming what goes on changes nothing.

Exit codes:
  0   it goes on
  1   refused: there is no rollout, or it has ended
  2   cannot tell: ask again, which is safe

Examples:
  muster rollout resume
  muster rollout skip web7 && muster rollout resume")]
pub struct ResumeArgs {
    #[command(flatten)]
    which: Which,
}

pub(in crate::commands) async fn pause(
    args: &PauseArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { reason: args.reason.clone(), by: author(), ..OperateRequest::default() };
    let done = say(&mut session, terminal, args.which.rollout(), RolloutVerb::Pause, operate).await?;
    terminal.out.answer(&done, |out| match (done.changed, &done.phase) {
        (true, _) => {
            let (id, revision) = (done.id, done.revision);
            out.line(format_args!("rollout {id} is paused: nothing more is granted (revision {revision})"));
        }
        (false, RolloutPhase::Paused { why: PauseReason::Operator { .. } }) => {
            out.line(format_args!("rollout {} was paused already", done.id));
        }
        (false, phase) => out.line(format_args!("rollout {} is {}", done.id, phase.word())),
    });
    terminal.notes.note("muster rollout resume lets it go on; muster rollout rollback goes back");
    Ok(Exit::Yes)
}

pub(in crate::commands) async fn resume(
    args: &ResumeArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { by: author(), ..OperateRequest::default() };
    let done = say(&mut session, terminal, args.which.rollout(), RolloutVerb::Resume, operate).await?;
    terminal.out.answer(&done, |out| match done.changed {
        true => out.line(format_args!("rollout {} goes on (revision {})", done.id, done.revision)),
        false => out.line(format_args!("rollout {} was not paused", done.id)),
    });
    terminal.notes.note("muster rollout status --watch follows it");
    Ok(Exit::Yes)
}
