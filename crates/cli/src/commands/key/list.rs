//! `muster key list`: lists the trusted keys of an environment.

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal};

/// List the keys that the environment trusts
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
An environment has no list until `muster key trust` creates one. Until then each node trusts the keys of its own \
configuration.

Exit codes:
  0   success
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster key list
  muster key list -o json | jq -r '.list.keys[]'")]
pub struct Args {}

pub(in crate::commands) async fn run(_: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let trust = session.map_err(session.client().trust(&session.env).await)?;
    terminal.out.answer(&trust, |out| match &trust.list {
        None => out.line(format_args!(
            "{} has no list of trusted keys: each node trusts the keys of its configuration",
            session.env
        )),
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
