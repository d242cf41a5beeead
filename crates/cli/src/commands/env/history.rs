//! `muster env history`: lists the revisions of the design of an environment.

use muster_core::names::EnvName;

use crate::args::Globals;
use crate::connect::ServerConnection;
use crate::failure::{Exit, Failure};
use crate::output::{NONE, Table, Terminal, age};

/// List the revisions of the design of an environment, newest first, with author and message
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   success
  1   the environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster env history prod
  muster env history prod -o json | jq '.items[0].author'")]
pub struct Args {
    /// Name of the environment
    #[arg(value_name = "ENV")]
    name: EnvName,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = ServerConnection::find(globals)?;
    let page = server.client.design_revisions(&args.name).await.map_err(|error| server.failure(error))?;
    let now = terminal.now;
    let none = page.items.is_empty();
    terminal.out.answer(&page, |out| {
        if none {
            return;
        }
        let mut table = Table::new(["DESIGN", "AGO", "AUTHOR", "APPLIED", "MESSAGE"]);
        for row in &page.items {
            let follow = if row.applied { "yes" } else { NONE };
            table.row([
                row.design.to_string(),
                age(row.at, now),
                row.author.clone(),
                follow.to_owned(),
                row.message.clone(),
            ]);
        }
        out.table(table);
    });
    if none {
        terminal
            .notes
            .note(format_args!("{} has no design yet; apply one with `muster env apply {} DIR`", args.name, args.name));
    }
    Ok(Exit::Yes)
}
