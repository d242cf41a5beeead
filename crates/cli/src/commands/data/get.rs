//! `muster data get`: one datum of a layer.

use muster_core::names::DataKey;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Terminal, age};

use super::LayerArgs;

/// Show one datum as it was set, with who set it, when and why
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
`muster lookup NODE KEY` shows what a node sees, with all layers.

Exit codes:
  0   it was shown; a secret as [secret]
  1   there is no such datum in this layer
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster data get ntp_servers --role web
  muster data get ntp_servers -o json | jq .value")]
pub struct Args {
    /// The key
    #[arg(value_parser = super::key)]
    key: DataKey,
    #[command(flatten)]
    layer: LayerArgs,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let row = session.told(session.client().datum(&session.env, &args.layer.layer(), &args.key).await)?;
    let now = terminal.now;
    terminal.out.answer(&row, |out| {
        out.line(super::value(&row));
        let why = row.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        let (layer, by, revision) = (&row.layer, &row.by, row.changed_at);
        out.line(format_args!("{layer}, set by {by} {} ago{why} (revision {revision})", age(row.at, now)));
    });
    Ok(Exit::Yes)
}
