//! `muster key list`: whose signatures count in an environment.

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Table, Terminal};

/// List the keys whose signatures count in the environment
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
An environment has no list until somebody makes one with `muster key trust`: until then each node goes by the keys that \
it was set up with.

Exit codes:
  0   they were listed
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster key list
  muster key list -o json | jq -r '.list.keys[]'")]
pub struct Args {}

pub(in crate::commands) async fn run(_: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let shown = session.told(session.client().trust(&session.env).await)?;
    terminal.out.answer(&shown, |out| match &shown.list {
        None => {
            out.line(format_args!("{} has no list of keys: its nodes go by those that they were given", session.env))
        }
        Some(list) => {
            let mut table = Table::new(["KEY", "PUBLIC"]);
            for key in &list.keys {
                table.row([key.id().to_string(), key.to_string()]);
            }
            out.table(table);
            out.gap();
            out.line(format_args!("serial {}", list.serial));
        }
    });
    Ok(Exit::Yes)
}
