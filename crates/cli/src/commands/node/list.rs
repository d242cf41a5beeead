//! `muster node list`: every node of the design, in the order of the design.

use crate::args::Globals;
use crate::commands::filter_args::{NodeFilter, node_filter_help};
use crate::commands::rows;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

/// List the nodes of the design: where each stands, what it runs, what it waits for
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(node_filter_help!(), "

Exit codes:
  0   they were listed
  1   there is no such environment, or the filter cannot be read
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster node list
  muster node list role=web state!=validated
  muster node list label.rack=r1,r2 -o json | jq -r '.items[].node'"))]
pub struct Args {
    #[command(flatten)]
    filter: NodeFilter,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.told(session.client().nodes_of(&session.env, &args.filter.text()).await)?;
    let now = terminal.now;
    let none = page.items.is_empty();
    terminal.out.answer(&page, |out| {
        if !none {
            out.table(rows::table(&page.items, now));
        }
    });
    if none {
        let which = if args.filter.is_empty() { "has no node yet" } else { "has no such node" };
        terminal.notes.note(format_args!("{} {which}", session.env));
    }
    Ok(Exit::Yes)
}
