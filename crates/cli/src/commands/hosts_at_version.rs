//! `muster hosts-at-version`: who has proved to run a version.

use muster_core::names::Version;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

/// List the nodes that have proved to run a version, one a line
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0   they were listed, if there are any
  1   there is no such environment
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster hosts-at-version v1
  muster hosts-at-version v1 | muster verify-hosts v2 --wait")]
pub struct Args {
    /// The version, such as v2
    version: Version,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.told(session.client().hosts_at_version(&session.env, &args.version).await)?;
    terminal.out.answer(&page, |out| page.items.iter().for_each(|host| out.line(host)));
    if page.items.is_empty() {
        terminal.notes.note(format_args!("no node of {} has proved to run {}", session.env, args.version));
    }
    Ok(Exit::Yes)
}
