//! `muster node list`: lists the nodes of an environment in the order of the design.

use crate::args::Globals;
use crate::args::filter::{NodeFilter, node_filter_help};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Terminal, node_table};

/// List the nodes with state, version, and the reason for not being validated
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(node_filter_help!(), "

Exit codes:
  0   success
  1   the environment does not exist, or the filter is invalid
  2   unknown: the server cannot be reached, or is not up to date

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
    let page = session.map_err(session.client().nodes_of(&session.env, &args.filter.text()).await)?;
    let now = terminal.now;
    let none = page.items.is_empty();
    terminal.out.answer(&page, |out| {
        if !none {
            out.table(node_table(&page.items, now));
        }
    });
    if none {
        let text = if args.filter.is_empty() { "has no nodes yet" } else { "has no matching nodes" };
        terminal.notes.note(format_args!("{} {text}", session.env));
    }
    Ok(Exit::Yes)
}
