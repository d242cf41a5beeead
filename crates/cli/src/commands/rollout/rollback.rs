//! `muster rollout rollback`: back to what a whole rollout has validated.

use muster_wire::client::StatusQuery;
use muster_wire::request::made_up;
use muster_wire::rollout::Operate;

use crate::args::Globals;
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

use super::asking::until_answered;
use super::status_view::blast_radius;
use super::watch;
use super::which::Which;

/// Go back to the last version that a whole rollout has validated
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
This is a rollout of its own, through the same budgets: nodes that were sent to the version go back, the others stay. \
It has one wave for each stage, and stops if nodes fail there too.

Exit codes:
  0   it has begun; with --watch: it is completed
  1   refused: there is no rollout, or no version that a whole rollout has validated; with --watch: it failed
  2   cannot tell: ask again, which is safe

Examples:
  muster rollout rollback
  muster rollout rollback --watch")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Follow it to its end
    #[arg(long)]
    watch: bool,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let query = StatusQuery { numbers: true, ..StatusQuery::default() };
    let status = session.told(session.client().rollout(&session.env, args.which.rollout(), query).await)?;
    // The one that was looked at, and not another that somebody starts meanwhile.
    let (id, operate) = (status.record.id, Operate { request: made_up(), by: author(), ..Operate::default() });
    let ask = async |session: &Session| session.client().roll_back(&session.env, id.into(), &operate).await;
    let done = until_answered(&mut session, terminal, ask).await?;
    if !args.watch {
        terminal.out.answer(&done, |out| {
            let (env, id, to, before, at) = (&session.env, done.id, &done.to, status.record.id, done.revision);
            out.line(format_args!("{env} goes back to {to}: rollout {id} takes rollout {before} back (revision {at})"));
            out.line(format_args!("  {}", blast_radius(&status, true)));
        });
        terminal.notes.note("muster rollout status --watch follows it");
        return Ok(Exit::Yes);
    }
    terminal.notes.note(blast_radius(&status, true));
    watch::follow(&mut session, done.id.into(), None, globals.output, terminal).await
}
