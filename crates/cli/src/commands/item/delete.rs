//! `muster item delete`: deletes a document that was written through the API.

use muster_wire::client::{DocumentPrecondition, WriteOptions};

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;
use crate::variables::author;

/// Delete a document that was written through the API from the design
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The versions of the document in directories are kept, and take effect again. To remove a document of a directory, delete \
it there and apply the directory.

Exit codes:
  0   deleted; `muster env apply ENV` applies the change to nodes
  1   refused: the document does not exist, other documents need it, or a conflict
  2   unknown: retry, which is safe

Examples:
  muster item delete Network oob --message 'back to the default'
  muster item delete Network oob --dry-run")]
pub struct Args {
    /// Kind of the document, such as Network
    kind: String,
    /// Name of the document
    name: String,
    /// Only if the document has this etag
    #[arg(long, value_name = "ETAG")]
    if_match: Option<String>,
    /// Reason for the change, kept in the history of the design
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    message: String,
    /// Check the change without making it
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
    let accepted = session.map_err(deleted)?;
    super::show_accepted(&accepted, args.dry_run, &session.env, terminal);
    Ok(Exit::Yes)
}
