//! `muster env list`: the environments of the server.

use crate::args::Globals;
use crate::commands::rows;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Server;
use crate::terminal::{Table, Terminal};

/// List the environments of the server
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   they were listed
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster env list
  muster env list -o json | jq -r '.items[].env'")]
pub struct Args {}

pub(in crate::commands) async fn run(_: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = Server::find(globals)?;
    let page = server.client.environments().await.map_err(|error| server.failure(error))?;
    terminal.out.answer(&page, |out| {
        let mut table = Table::new(["ENVIRONMENT", "NODES", "VERSION"]);
        for row in &page.items {
            table.row([row.env.to_string(), row.nodes.to_string(), rows::version(row.current_version.as_ref())]);
        }
        out.table(table);
    });
    Ok(Exit::Yes)
}
