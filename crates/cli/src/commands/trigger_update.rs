//! `muster trigger-update`: the fleet to a version, in the environment's own way.

use muster_core::names::Version;
use muster_wire::operator::{TriggerUpdate, UpdateResponse};
use muster_wire::request::new_request_id;
use muster_wire::rollout::{PlanRequest, StartRequest, StartTarget};

use crate::args::{Format, Globals};
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

use super::rollout::{start, watch};

/// Move the environment to a version, in its own way
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
This starts a rollout with the strategy of the environment's file; `muster rollout plan VERSION` shows beforehand what it \
does. The first version of an environment, and --at-once, move every node in one transaction. Asking for the version that \
the environment should run already changes nothing, and is done. The answer names the revision of the change: another \
replica that is asked with --min-revision answers when it has seen it, and with exit code 2 if that takes too long.

A release with a lower serial than the one that the environment should run is refused: a way back that is not meant \
brings old faults back. --allow-older says that it is meant, for this version and until another one is set. To take a \
rollout back, use `muster rollout rollback`.

Exit codes:
  0   it has begun; whether nodes have arrived is for rollout status and verify-hosts to say; with --watch: it is completed
  1   it has not: no such release or environment, an older release, another rollout under way, or somebody else was
      faster; with --watch: it failed
  2   cannot tell whether it has: ask again, which is safe

Examples:
  muster trigger-update v2
  muster trigger-update v2 --watch
  muster trigger-update v2 --at-once && muster verify-hosts v2 --wait
  muster trigger-update v1 --allow-older")]
pub struct Args {
    /// The version, such as v2; its release must be there
    version: Version,
    /// Let nodes go there from a later release
    #[arg(long)]
    allow_older: bool,
    /// Every node in one transaction, in place of whatever is under way: without waves, budgets and gates
    #[arg(long)]
    at_once: bool,
    /// In place of the rollout that is under way
    #[arg(long)]
    supersede: bool,
    /// Follow it to its end
    #[arg(long)]
    watch: bool,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let Args { version, allow_older, at_once, .. } = args.clone();
    // What is done at once takes the place of whatever is under way by itself.
    if args.supersede && !at_once {
        let plan = PlanRequest { allow_older, ..PlanRequest::to(version) };
        let request =
            StartRequest { what: StartTarget::Now(plan), request: new_request_id(), supersede: true, by: author() };
        let answer = start::begin(&mut session, &request, terminal).await?;
        return start::tell(&mut session, &answer, args.watch, globals.output, terminal).await;
    }
    let update = TriggerUpdate { version, allow_older, at_once, by: author() };
    let done = session.told(session.client().trigger(&session.env, &update).await)?;
    if !args.watch || globals.output == Format::Table {
        terminal.out.answer(&done, |out| out.line(told(&session, &done)));
        terminal.out.flush();
    }
    if args.watch
        && let Some(id) = done.rollout
    {
        return watch::follow(&mut session, id.into(), None, globals.output, terminal).await;
    }
    if done.changed {
        let to = &done.to;
        terminal.notes.note(match at_once || done.rollout.is_none() {
            true => format!("muster verify-hosts {to} --wait waits until every node is there"),
            false => "muster rollout status --watch follows it".to_owned(),
        });
    }
    Ok(Exit::Yes)
}

fn told(session: &Session, done: &UpdateResponse) -> String {
    let (env, to, revision) = (&session.env, &done.to, done.revision);
    let rollout = done.rollout.map(|id| format!(": rollout {id}")).unwrap_or_default();
    match (&done.from, done.changed) {
        (_, false) => format!("{env} should run {to} already: nothing was changed"),
        (Some(from), true) => format!("{env} goes from {from} to {to}{rollout} (revision {revision})"),
        (None, true) => format!("{env} goes to {to}{rollout} (revision {revision})"),
    }
}
