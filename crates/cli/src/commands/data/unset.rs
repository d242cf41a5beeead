//! `muster data unset`: takes a datum away.

use muster_core::names::DataKey;
use muster_core::txn::Revision;
use muster_wire::client::DatumPrecondition;

use crate::args::Globals;
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

use super::LayerArgs;

/// Take a datum out of a layer; what a wider layer says holds then
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   it is not there any more; or was not
  1   refused: somebody has changed it since the revision that was named
  2   cannot tell: ask again, which is safe

Examples:
  muster data unset ntp_servers --role web
  muster data unset ntp_servers --host web1 --if-revision 71")]
pub struct Args {
    /// The key
    #[arg(value_parser = super::key)]
    key: DataKey,
    #[command(flatten)]
    layer: LayerArgs,
    /// Only if it is still that of this revision
    #[arg(long, value_name = "N")]
    if_revision: Option<u64>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let (layer, key) = (args.layer.layer(), &args.key);
    let before =
        args.if_revision.map_or(DatumPrecondition::Anything, |revision| DatumPrecondition::At(Revision(revision)));
    let done = session.client().unset_datum(&session.env, (&layer, key), before, &author()).await;
    let done = session.told(done)?;
    terminal.out.answer(&done, |out| match &done.before {
        Some(before) => {
            let (was, revision) = (super::value(before), done.revision);
            out.line(format_args!("{key} ({layer}) is not set any more; it was {was} (revision {revision})"));
        }
        None => out.line(format_args!("{key} ({layer}) was not set")),
    });
    Ok(Exit::Yes)
}
