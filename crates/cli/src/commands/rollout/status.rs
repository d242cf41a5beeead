//! `muster rollout status`: how it stands, who blocks and why.

use jiff::SignedDuration;
use muster_core::rollout::RolloutId;
use muster_wire::client::StatusQuery;

use crate::args::{Format, Globals};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

use super::{status_view, verdict, watch, which};

/// Show how a rollout stands: waves and roles, deadlines, who blocks and why
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
DESIRED is how many nodes of the role the wave has; GRANTED how many of them were told to go; APPLYING how many are on \
their way; HEALTHY and FAILED how many have arrived, or not. DEADLINE is how long the next of them has left.

With --watch it is shown until it ends. On a terminal it is redrawn in place; in a pipe there is one line for each change. \
A pause by a person, a closed window and waiting for a promotion are no end. A rollout that is rolled back is followed \
into its rollback. A server that goes away meanwhile is waited for. With -o json or yaml, the end alone is printed.

Exit codes:
  0   it is completed; without --watch also: it goes on
  1   it failed: paused because of failures, aborted, rolled back or superseded
  2   cannot tell: it is paused because a check could not say whether all is well, or because nothing gets better;
      it did not end within --timeout; there is no such rollout; or the server is not there
  130 with --watch: Ctrl-C was pressed; the rollout goes on

Examples:
  muster rollout status
  muster rollout status 7
  muster rollout status --watch
  muster rollout status 7 --watch --timeout 2h || muster rollout rollback --id 7
  muster rollout status -o json | jq .counts")]
pub struct Args {
    /// The number of the rollout [default: the last one that was started]
    #[arg(value_parser = which::id)]
    id: Option<RolloutId>,
    /// Follow it to its end
    #[arg(long)]
    watch: bool,
    /// How long to follow it, such as 90s or 1h30m [default: until it ends]
    #[arg(long, requires = "watch", value_name = "DURATION", value_parser = crate::patience::read)]
    timeout: Option<SignedDuration>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let which = which::which(args.id);
    if args.watch {
        return watch::follow(&mut session, which, args.timeout, globals.output, terminal).await;
    }
    // A table has no single nodes.
    let query = StatusQuery { numbers: globals.output == Format::Table, ..StatusQuery::default() };
    let status = session.told(session.client().rollout(&session.env, which, query).await)?;
    terminal.out.answer(&status, |out| status_view::show(&session.env, &status, out));
    Ok(verdict::judge(&status.record.phase).exit())
}
