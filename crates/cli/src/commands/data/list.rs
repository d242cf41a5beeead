//! `muster data list`: all data, of a layer, or as a node sees them.

use muster_wire::client::DataQuery;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Table, Terminal, age};

use super::LayerArgs;

/// List configuration data: all layers, one layer, or what one node sees
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   they were listed; secrets as [secret]
  1   there is no such node
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster data list
  muster data list --role web
  muster data list --effective web1 -o json | jq '.items[] | {key, value}'")]
pub struct Args {
    #[command(flatten)]
    layer: LayerArgs,
    /// What this node sees, without what is hidden from it
    #[arg(long, value_name = "NODE", conflicts_with_all = ["role", "host"])]
    effective: Option<String>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let query = DataQuery { layer: args.layer.given(), effective: args.effective.clone(), key: None };
    let page = session.told(session.client().data(&session.env, &query).await)?;
    let now = terminal.now;
    terminal.out.answer(&page, |out| {
        if page.items.is_empty() {
            return;
        }
        let mut table = Table::new(["KEY", "LAYER", "BY", "AGO", "VALUE"]);
        for row in &page.items {
            let nobody = if row.for_nobody { " (no such node)" } else { "" };
            table.row([
                row.key.to_string(),
                format!("{}{nobody}", row.layer),
                row.by.clone(),
                age(row.at, now),
                super::value(row),
            ]);
        }
        out.table(table);
    });
    if page.items.is_empty() {
        terminal.notes.note(format_args!("there are no such data in {}: muster data set KEY VALUE", session.env));
    }
    Ok(Exit::Yes)
}
