//! `muster env …`: plans, applies, shows and destroys environments.

pub(super) mod apply;
pub(crate) mod design_input;
pub(super) mod destroy;
pub(super) mod history;
pub(super) mod plan;
pub(super) mod show;

use crate::args::Globals;
use crate::connect::ServerConnection;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal, version_cell};

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    Plan(plan::Args),
    Apply(apply::Args),
    List(ListArgs),
    Show(show::Args),
    History(history::Args),
    Destroy(destroy::Args),
}

/// List the environments of the server
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster env list
  muster env list -o json | jq -r '.items[].env'")]
pub struct ListArgs {}

pub(super) async fn list(_: &ListArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let page = server.client.environments().await.map_err(|error| server.failure(error))?;
    terminal.out.answer(&page, |out| {
        let mut table = Table::new(["ENV", "NODES", "CURRENT VERSION"]);
        for row in &page.items {
            table.row([row.env.to_string(), row.nodes.to_string(), version_cell(row.current_version.as_ref())]);
        }
        out.table(table);
    });
    Ok(Exit::Yes)
}
