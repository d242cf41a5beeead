//! `muster data get`: shows one datum of a layer.

use muster_core::names::DataKey;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Terminal, age};

use super::LayerArgs;

/// Show one datum of a layer, with its author, age and message
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
`muster lookup NODE KEY` shows the value for a node, from all layers.

Exit codes:
  0   success; a secret is printed as [secret]
  1   the layer has no such key
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster data get ntp_servers --role web
  muster data get ntp_servers -o json | jq .value")]
pub struct Args {
    /// Key
    #[arg(value_parser = super::key_arg)]
    key: DataKey,
    #[command(flatten)]
    layer: LayerArgs,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let layer = args.layer.layer(&session).await?;
    let row = session.map_err(session.client().datum(&session.env, &layer, &args.key).await)?;
    let now = terminal.now;
    terminal.out.answer(&row, |out| {
        out.line(super::value(&row));
        let why = row.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        let (layer, by, revision) = (&row.layer, &row.by, row.changed_at);
        out.line(format_args!("{layer}, set by {by} {} ago{why} (revision {revision})", age(row.at, now)));
    });
    Ok(Exit::Yes)
}
