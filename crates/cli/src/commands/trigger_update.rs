//! `muster trigger-update`: the whole fleet to a version.

use muster_core::names::Version;
use muster_wire::operator::TriggerUpdate;

use crate::args::Globals;
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

/// Set the version that the environment should run
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
All nodes go there by themselves. Asking for the version that the environment should run already changes nothing, \
and is done. The answer names the revision of the change: another replica that is asked with --min-revision answers \
when it has seen it, and with exit code 2 if that takes too long.

A release with a lower serial than the one that the environment should run is refused: a way back that is not meant \
brings old faults back. --allow-older says that it is meant, for this version and until another one is set.

Exit codes:
  0   it is set; whether nodes have arrived is for verify-hosts to say
  1   it is not: no such release or environment, an older release, or somebody else was faster
  2   cannot tell whether it is set: ask again, which is safe

Examples:
  muster trigger-update v2
  muster trigger-update v2 && muster verify-hosts v2 --wait
  muster trigger-update v1 --allow-older")]
pub struct Args {
    /// The version, such as v2; its release must be there
    version: Version,
    /// Let nodes go there from a later release
    #[arg(long)]
    allow_older: bool,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let env = &session.env;
    let update =
        TriggerUpdate { version: args.version.clone(), allow_older: args.allow_older, at_once: false, by: author() };
    let done = session.told(session.client().trigger(env, &update).await)?;
    terminal.out.answer(&done, |out| match (&done.from, done.changed) {
        (_, false) => out.line(format_args!("{env} should run {} already: nothing was changed", done.to)),
        (Some(from), true) => {
            out.line(format_args!("{env} goes from {from} to {} (revision {})", done.to, done.revision));
        }
        (None, true) => out.line(format_args!("{env} goes to {} (revision {})", done.to, done.revision)),
    });
    if done.changed {
        terminal.notes.note(format_args!("muster verify-hosts {} --wait waits until every node is there", done.to));
    }
    Ok(Exit::Yes)
}
