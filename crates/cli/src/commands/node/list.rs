//! `muster node list`: every node of the design, in the order of the design.

use crate::args::Globals;
use crate::commands::rows;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

/// List the nodes of the design: where each stands, what it runs, what it waits for
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   they were listed
  1   there is no such environment
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster node list
  muster node list -o json | jq -r '.items[] | select(.standing == \"pending\") | .node'")]
pub struct Args {}

pub(in crate::commands) async fn run(_: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.told(session.client().nodes(&session.env).await)?;
    let now = terminal.now;
    terminal.out.answer(&page, |out| out.table(rows::table(&page.items, now)));
    Ok(Exit::Yes)
}
