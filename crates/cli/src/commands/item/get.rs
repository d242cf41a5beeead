//! `muster item get`: shows one document of a design.

use muster_core::design::DesignRevision;

use crate::args::{Format, Globals};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;

/// Show one document of the design: the text of each source, and the effective values
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
--if-match of `put` and `delete` takes the etag.

Exit codes:
  0   success
  1   the document or environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster item get Network oob
  muster item get Network oob --design 3
  muster item get Node web1 -o json | jq .effective
  muster item get promenade/Docker/v1 docker -o json | jq -r .etag")]
pub struct Args {
    /// Kind of the document, such as Network
    kind: String,
    /// Name of the document
    name: String,
    /// Revision of the design [default: the newest]
    #[arg(long, value_name = "N", value_parser = super::list::design_revision_arg)]
    design: Option<DesignRevision>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let detail = session.map_err(session.client().document(&session.env, &args.kind, &args.name, args.design).await)?;
    // Documents are YAML, also for people.
    let format = if globals.output == Format::Table { Format::Yaml } else { globals.output };
    terminal.out.answer_as(format, &detail, |_| {});
    Ok(Exit::Yes)
}
