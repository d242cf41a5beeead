//! `muster failures`: the nodes that need a person.

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

use super::rows;

/// List the nodes that failed, and why
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A node has failed if its applier or its validation failed, if its machine could not be made, or if its agent \
cannot act. A node that waits for others has not failed.

Exit codes:
  0   no node has failed
  1   some have, and are listed
  2   cannot tell: no server, no such environment, or a server that has not read its store yet

Examples:
  muster failures
  muster failures -o json | jq -r '.items[].node'")]
pub struct Args {}

pub(super) async fn run(_: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.told(session.client().failures(&session.env).await)?;
    let now = terminal.now;
    let none = page.items.is_empty();
    terminal.out.answer(&page, |out| {
        if !none {
            out.table(rows::table(&page.items, now));
        }
    });
    if none {
        terminal.notes.note(format_args!("no node of {} has failed", session.env));
    }
    Ok(Exit::yes_if(none))
}
