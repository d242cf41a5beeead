//! `muster item get`: one document of a design.

use muster_core::design::DesignRevision;

use crate::args::{Format, Globals};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

/// Show one document of the environment's design: as each source wrote it, and its effective values
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The etag is what --if-match of put and delete compares.

Exit codes:
  0   it was shown
  1   there is no such document or environment
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster item get Network oob
  muster item get Network oob --design 3
  muster item get Node web1 -o json | jq .effective
  muster item get promenade/Docker/v1 docker -o json | jq -r .etag")]
pub struct Args {
    /// The kind, such as Network
    kind: String,
    /// The name
    name: String,
    /// The revision of the design [default: the newest]
    #[arg(long, value_name = "N", value_parser = super::list::design)]
    design: Option<DesignRevision>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let detail = session.told(session.client().document(&session.env, &args.kind, &args.name, args.design).await)?;
    // A document is YAML, so that is how people see it as well.
    let format = if globals.output == Format::Table { Format::Yaml } else { globals.output };
    terminal.out.answer_as(format, &detail, |_| {});
    Ok(Exit::Yes)
}
