//! `muster data list`: lists the data of all layers, of one layer, or for one node.

use muster_wire::client::DataQuery;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal, age};

use super::LayerArgs;

/// List configuration data of all layers, of one layer, or for one node
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success; secrets are printed as [secret]
  1   the node does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster data list
  muster data list --role web
  muster data list --effective web1 -o json | jq '.items[] | {key, value}'")]
pub struct Args {
    #[command(flatten)]
    layer: LayerArgs,
    /// The effective values for this node, without overridden ones
    #[arg(long, value_name = "NODE", conflicts_with_all = ["role", "host"])]
    effective: Option<String>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let layer = args.layer.given(&session).await?;
    let query = DataQuery { layer, effective: args.effective.clone(), key: None };
    let page = session.map_err(session.client().data(&session.env, &query).await)?;
    let now = terminal.now;
    terminal.out.answer(&page, |out| {
        if page.items.is_empty() {
            return;
        }
        let mut table = Table::new(["KEY", "LAYER", "BY", "AGO", "VALUE"]);
        for row in &page.items {
            let unused = if row.matches_no_node { " (no such node)" } else { "" };
            table.row([
                row.key.to_string(),
                format!("{}{unused}", row.layer),
                row.by.clone(),
                age(row.at, now),
                super::value(row),
            ]);
        }
        out.table(table);
    });
    if page.items.is_empty() {
        terminal
            .notes
            .note(format_args!("{} has no such data; set some with `muster data set KEY VALUE`", session.env));
    }
    Ok(Exit::Yes)
}
