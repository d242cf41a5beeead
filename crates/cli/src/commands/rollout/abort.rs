//! `muster rollout abort`: ends a rollout; nodes keep their versions.

use muster_wire::client::{RolloutVerb, StatusQuery};
use muster_wire::rollout::OperateRequest;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;
use crate::variables::author;

use super::labels::granted;
use super::status_view::abort_summary;
use super::{RolloutArg, send};

/// End a rollout: nodes keep their versions
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Nodes that have started the version keep it; all others keep their previous version. `muster rollout rollback` reverts the \
updated nodes, also after an abort. Aborting twice is a no-op.

Exit codes:
  0   aborted
  1   refused: there is no rollout, or it has ended already
  2   unknown: retry, which is safe

Examples:
  muster rollout abort --reason 'wrong version'
  muster rollout abort --id 7")]
pub struct Args {
    /// Reason, shown in the status of the rollout
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    rollout: RolloutArg,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { reason: args.reason.clone(), by: author(), ..OperateRequest::default() };
    let done = send(&mut session, terminal, args.rollout.selected(), RolloutVerb::Abort, operate).await?;
    // Counted after the abort, when nothing more is granted.
    let query = StatusQuery { numbers: true, ..StatusQuery::default() };
    let status = session.client().clone().at_least(done.revision).rollout(&session.env, done.id.into(), query).await;
    let status = session.map_err(status)?;
    terminal.out.answer(&done, |out| {
        match done.changed {
            true => out.line(format_args!("rollout {} is aborted (revision {})", done.id, done.revision)),
            false => out.line(format_args!("rollout {} was aborted already", done.id)),
        }
        out.line(format_args!("  {}", abort_summary(&status)));
    });
    let start = "start another rollout with `muster rollout start VERSION`";
    match status.stable {
        Some(_) if granted(&status.counts) > 0 => {
            terminal.notes.note(format_args!("revert them with `muster rollout rollback`; {start}"))
        }
        Some(_) | None => terminal.notes.note(start),
    }
    Ok(Exit::Yes)
}
