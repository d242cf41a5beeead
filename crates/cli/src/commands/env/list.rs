//! `muster env list`: lists the environments of the server.

use crate::args::Globals;
use crate::connect::Connection;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal, version_cell};

/// List the environments of the server
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster env list
  muster env list -o json | jq -r '.items[].env'")]
pub struct Args {}

pub(in crate::commands) async fn run(_: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = Connection::find(globals)?;
    let page = server.client.environments().await.map_err(|error| server.failure(error))?;
    terminal.out.answer(&page, |out| {
        let mut table = Table::new(["ENVIRONMENT", "NODES", "VERSION"]);
        for row in &page.items {
            table.row([row.env.to_string(), row.nodes.to_string(), version_cell(row.current_version.as_ref())]);
        }
        out.table(table);
    });
    Ok(Exit::Yes)
}
