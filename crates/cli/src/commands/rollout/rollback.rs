//! `muster rollout rollback`: back to what a whole rollout has validated.

use muster_wire::client::StatusQuery;
use muster_wire::request::new_request_id;
use muster_wire::rollout::OperateRequest;

use crate::args::Globals;
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

use super::asking::until_answered;
use super::watch;
use super::way_back::way_back;
use super::which::Which;

/// Go back to the last version that a whole rollout has validated
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
This is a rollout of its own, through the same budgets: nodes that were sent to the version go back; who was set aside \
stays. It has one wave for each stage, and stops if nodes fail there too. Without --id, a rollout that is itself a way back \
is not taken back: asking twice moves nobody twice.

Exit codes:
  0   it has begun; with --watch: it is completed
  1   refused: there is no rollout, or no version that a whole rollout has validated, or it was
      rolled back already, or is itself a way back; with --watch: it failed
  2   cannot tell: ask again, which is safe

Examples:
  muster rollout rollback
  muster rollout rollback --id 7
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
    let (id, undo_rollback) = (status.record.id, args.which.is_named());
    let operate =
        OperateRequest { request: new_request_id(), undo_rollback, by: author(), ..OperateRequest::default() };
    let ask = async |session: &Session| session.client().roll_back(&session.env, id.into(), &operate).await;
    let done = until_answered(&mut session, terminal, ask).await?;
    // Counted from its own plan: whom the old one has sent, and who of them is fetched, are not the same.
    let back = session.client().clone().at_least(done.revision).rollout(&session.env, done.id.into(), query).await;
    // It has begun, whether or not somebody can say now how many that are.
    let told = back.map(|back| way_back(&status.record, &back)).unwrap_or_default();
    if !args.watch {
        terminal.out.answer(&done, |out| {
            let (env, id, to, before, at) = (&session.env, done.id, &done.to, status.record.id, done.revision);
            out.line(format_args!("{env} goes back to {to}: rollout {id} takes rollout {before} back (revision {at})"));
            told.iter().for_each(|line| out.line(format_args!("  {line}")));
        });
        terminal.notes.note("muster rollout status --watch follows it");
        return Ok(Exit::Yes);
    }
    told.iter().for_each(|line| terminal.notes.note(line));
    watch::follow(&mut session, done.id.into(), None, globals.output, terminal).await
}
