//! `muster data unset`: removes a datum from a layer.

use muster_core::names::DataKey;
use muster_core::txn::Revision;
use muster_wire::client::DatumPrecondition;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;
use crate::variables::author;

use super::LayerArgs;

/// Remove a datum from a layer; the value of the next wider layer applies then
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   removed, or was not set
  1   refused: the value has changed since --if-revision
  2   unknown: retry, which is safe

Examples:
  muster data unset ntp_servers --role web
  muster data unset ntp_servers --host web1 --if-revision 71")]
pub struct Args {
    /// Key
    #[arg(value_parser = super::key_arg)]
    key: DataKey,
    #[command(flatten)]
    layer: LayerArgs,
    /// Only if the value is still that of this revision
    #[arg(long, value_name = "N")]
    if_revision: Option<u64>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let (layer, key) = (args.layer.layer(&session).await?, &args.key);
    let before =
        args.if_revision.map_or(DatumPrecondition::Anything, |revision| DatumPrecondition::At(Revision(revision)));
    let done = session.client().unset_datum(&session.env, (&layer, key), before, &author()).await;
    let done = session.map_err(done)?;
    terminal.out.answer(&done, |out| match &done.before {
        Some(before) => {
            let (was, revision) = (super::value(before), done.revision);
            out.line(format_args!("{key} ({layer}) is no longer set; it was {was} (revision {revision})"));
        }
        None => out.line(format_args!("{key} ({layer}) was not set")),
    });
    Ok(Exit::Yes)
}
