//! `muster failures`: lists the nodes that have failed.

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Terminal, node_table};

/// List the nodes that have failed, with the reason
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A node has failed if its applier or its validation failed, if its machine could not be provisioned, or if its agent is \
blocked. A node that waits for other nodes has not failed.

Exit codes:
  0   no node has failed
  1   some nodes have failed, and are listed
  2   unknown: no server, no such environment, or the server has not loaded its store yet

Examples:
  muster failures
  muster failures -o json | jq -r '.items[].node'")]
pub struct Args {}

pub(super) async fn run(_: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.map_err(session.client().failures(&session.env).await)?;
    let now = terminal.now;
    let none = page.items.is_empty();
    terminal.out.answer(&page, |out| {
        if !none {
            out.table(node_table(&page.items, now));
        }
    });
    if none {
        terminal.notes.note(format_args!("no node of {} has failed", session.env));
    }
    Ok(Exit::yes_if(none))
}
