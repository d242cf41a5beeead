//! `muster current-version`: what the environment should run.

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

/// Print the version that the environment should run
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
What its nodes have proved to run is another question: `muster running-versions`.

Exit codes:
  0   it was printed
  1   no version was chosen yet, or there is no such environment
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster current-version
  muster verify-hosts \"$(muster current-version)\" web1 web2")]
pub struct Args {}

pub(super) async fn run(_: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let current = session.told(session.client().current_version(&session.env).await)?;
    terminal.out.answer(&current, |out| {
        if let Some(version) = &current.version {
            out.line(version);
        }
    });
    if current.version.is_none() {
        terminal
            .notes
            .note(format_args!("no version was chosen for {} yet: muster trigger-update VERSION", session.env));
    }
    Ok(Exit::yes_if(current.version.is_some()))
}
