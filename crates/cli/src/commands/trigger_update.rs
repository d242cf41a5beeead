//! `muster trigger-update`: updates an environment with its own rollout strategy.

use muster_core::names::Version;
use muster_wire::client::new_request_id;
use muster_wire::operator::{TriggerUpdate, UpdateResponse};
use muster_wire::rollout::{PlanRequest, StartRequest, StartTarget};

use crate::args::{Globals, OutputFormat};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;
use crate::variables::author;

use super::rollout::{start, watch};

/// Update the environment to a version, with its rollout strategy
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Starts a rollout with the strategy of the environment file; `muster rollout plan VERSION` shows the plan. The first version \
of an environment, and --at-once, start the version on every node in one transaction. A request for the current version \
is a no-op. The answer has the revision of the change: with --min-revision another replica answers when it has seen that \
revision, or with exit code 2 after a timeout.

A release with a lower serial than the current one is refused, because an accidental downgrade brings old bugs back. \
--allow-older allows it for this version, until another version is set. `muster rollout rollback` reverts a rollout.

Exit codes:
  0   started, or a no-op; with --watch: the rollout is completed
  1   refused: no such release or environment, an older release, another rollout in progress, or a conflict; with
      --watch: the rollout failed
  2   unknown: retry, which is safe

Examples:
  muster trigger-update v2
  muster trigger-update v2 --watch
  muster trigger-update v2 --at-once && muster verify-hosts v2 --wait
  muster trigger-update v1 --allow-older")]
pub struct Args {
    /// Version, such as v2; its release must have been pushed
    version: Version,
    /// Allow a downgrade to an older release
    #[arg(long)]
    allow_older: bool,
    /// Update every node in one transaction, without waves, budgets and gates; replaces a rollout in progress
    #[arg(long)]
    at_once: bool,
    /// Replace the rollout in progress
    #[arg(long)]
    supersede: bool,
    /// Follow the rollout until it ends
    #[arg(long)]
    watch: bool,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let Args { version, allow_older, at_once, .. } = args.clone();
    // --at-once always replaces a rollout in progress.
    if args.supersede && !at_once {
        let plan = PlanRequest { allow_older, ..PlanRequest::to(version) };
        let request =
            StartRequest { what: StartTarget::Now(plan), request: new_request_id(), supersede: true, by: author() };
        let answer = start::start_rollout(&mut session, &request, terminal).await?;
        return start::show_started(&mut session, &answer, args.watch, globals.output, terminal).await;
    }
    let update = TriggerUpdate { version, allow_older, at_once, by: author() };
    let done = session.map_err(session.client().trigger(&session.env, &update).await)?;
    if !args.watch || globals.output == OutputFormat::Table {
        terminal.out.answer(&done, |out| out.line(result(&session, &done)));
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
            true => format!("wait until every node has validated {to}: muster verify-hosts {to} --wait"),
            false => "follow the rollout: muster rollout status --watch".to_owned(),
        });
    }
    Ok(Exit::Yes)
}

fn result(session: &Session, done: &UpdateResponse) -> String {
    let (env, to, revision) = (&session.env, &done.to, done.revision);
    let rollout = done.rollout.map(|id| format!(": rollout {id}")).unwrap_or_default();
    match (&done.from, done.changed) {
        (_, false) => format!("{env} is at {to} already: no changes"),
        (Some(from), true) => format!("{env} is updated from {from} to {to}{rollout} (revision {revision})"),
        (None, true) => format!("{env} is updated to {to}{rollout} (revision {revision})"),
    }
}
