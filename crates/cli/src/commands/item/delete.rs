//! `muster item delete`: takes a document that was written through the API out of a design.

use muster_wire::client::{DocumentPrecondition, WriteOptions};

use crate::args::Globals;
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

/// Take a document that was written through the API out of the environment's design
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
What directories say of the document stays, and is in effect again. What stands in a directory is removed there, and \
applied.

Exit codes:
  0   it is out of the design; nodes follow with `muster env apply ENV`
  1   refused: there is no such document, others need it, or somebody else was faster
  2   cannot tell: ask again, which is safe

Examples:
  muster item delete Network oob --message 'back to the default'
  muster item delete Network oob --dry-run")]
pub struct Args {
    /// The kind, such as Network
    kind: String,
    /// The name
    name: String,
    /// Only if it has this etag
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
    /// Why, for the design's history
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    message: String,
    /// Check only, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let options = WriteOptions {
        expected: args.if_match.clone().map_or(DocumentPrecondition::Anything, DocumentPrecondition::Etag),
        message: args.message.clone(),
        author: Some(author()),
        dry_run: args.dry_run,
    };
    let deleted = session.client().delete_document(&session.env, &args.kind, &args.name, &options).await;
    let accepted = session.told(deleted)?;
    super::accepted(&accepted, args.dry_run, &session.env, terminal);
    Ok(Exit::Yes)
}
