//! `muster rollout abort`: the end of a rollout, wherever its nodes are.

use muster_wire::client::{RolloutVerb, StatusQuery};
use muster_wire::rollout::OperateRequest;

use crate::args::Globals;
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

use super::asking::say;
use super::status_view::blast_radius;
use super::which::Which;
use super::words::moved;

/// End a rollout: nodes stay where they are
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Nodes that were granted the version keep it, the others keep what they run. To bring the first ones back, use \
`muster rollout rollback` instead, also afterwards. Aborting what was aborted changes nothing.

Exit codes:
  0   it has ended
  1   refused: there is no rollout, or it has ended otherwise
  2   cannot tell: ask again, which is safe

Examples:
  muster rollout abort --reason 'wrong version'
  muster rollout abort --id 7")]
pub struct Args {
    /// Why: shown to everybody who looks at the rollout
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    which: Which,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { reason: args.reason.clone(), by: author(), ..OperateRequest::default() };
    let done = say(&mut session, terminal, args.which.rollout(), RolloutVerb::Abort, operate).await?;
    // Counted afterwards, when nothing more is granted: before, it would be wrong a moment later.
    let query = StatusQuery { numbers: true, ..StatusQuery::default() };
    let status = session.client().clone().at_least(done.revision).rollout(&session.env, done.id.into(), query).await;
    let status = session.told(status)?;
    terminal.out.answer(&done, |out| {
        match done.changed {
            true => out.line(format_args!("rollout {} is aborted (revision {})", done.id, done.revision)),
            false => out.line(format_args!("rollout {} was aborted already", done.id)),
        }
        out.line(format_args!("  {}", blast_radius(&status)));
    });
    let elsewhere = "muster rollout start VERSION goes elsewhere";
    match status.stable {
        Some(_) if moved(&status.counts) > 0 => {
            terminal.notes.note(format_args!("muster rollout rollback brings them back; {elsewhere}"))
        }
        Some(_) | None => terminal.notes.note(elsewhere),
    }
    Ok(Exit::Yes)
}
