//! `muster running-versions`: what nodes have proved to run.

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Table, Terminal};

/// List the versions that nodes have proved to run
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A node has proved to run a version when its validation passed there.

Exit codes:
  0   they were listed, if there are any
  1   there is no such environment
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster running-versions
  muster running-versions -o json | jq -r '.items[].version'")]
pub struct Args {}

pub(super) async fn run(_: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.told(session.client().running_versions(&session.env).await)?;
    terminal.out.answer(&page, |out| {
        let mut table = Table::new(["VERSION", "NODES"]);
        page.items.iter().for_each(|row| table.row([row.version.to_string(), row.nodes.to_string()]));
        if !page.items.is_empty() {
            out.table(table);
        }
    });
    if page.items.is_empty() {
        terminal.notes.note(format_args!("no node of {} has proved to run anything yet", session.env));
    }
    Ok(Exit::Yes)
}
