//! `muster rollout start`: starts a rollout to a version, from a saved plan or a new one.

use std::path::PathBuf;

use muster_core::names::Version;
use muster_wire::client::new_request_id;
use muster_wire::rollout::{AlreadyAtVersionResponse, StartRequest, StartResponse, StartTarget};

use crate::args::{Globals, OutputFormat};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal};
use crate::variables::author;

use super::plan_args::{PlanArgs, read_plan};
use super::{retry_until_answered, watch};

/// Start a rollout with the strategy of the environment, or from a saved plan
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
With --plan the saved plan is executed; it is refused if the fleet has changed since, and the difference is printed. While \
another rollout is in progress, a start is refused without --supersede, which ends that rollout; nodes are then updated \
directly to the newer version.

Exit codes:
  0   started, or every node runs the version already; with --watch: the rollout is completed
  1   refused: no such release, an older release, a plan that is out of date, or another rollout in progress; with --watch: the
      rollout failed
  2   unknown: retry, which is safe
  64  the file of the plan does not exist

Examples:
  muster rollout start v3
  muster rollout start v3 --plan v3.plan
  muster rollout start v3 --strategy careful.yaml --watch
  muster rollout start v4 --supersede")]
pub struct Args {
    /// Version, such as v3; its release must have been pushed
    version: Version,
    /// Execute this plan of `muster rollout plan --out`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["strategy", "seed", "allow_older", "at_once"])]
    plan: Option<PathBuf>,
    #[command(flatten)]
    options: PlanArgs,
    /// Replace the rollout in progress
    #[arg(long)]
    supersede: bool,
    /// Follow the rollout until it ends
    #[arg(long)]
    watch: bool,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    // An invalid file is refused before any request.
    let plan = args.plan.as_deref().map(read_plan).transpose()?;
    let mut session = Session::open(globals).await?;
    let start = match plan {
        Some(plan) if plan.to != args.version => {
            let (to, version) = (&plan.to, &args.version);
            return Err(Failure::usage(format!("the plan is for version {to}, not for {version}")));
        }
        Some(plan) if plan.env != session.env => {
            let (env, selected) = (&plan.env, &session.env);
            return Err(Failure::usage(format!("the plan is for environment {env}, not for {selected}")));
        }
        Some(plan) => StartTarget::Plan(Box::new(plan)),
        None => StartTarget::Now(args.options.request(&args.version, &session, &mut terminal.notes).await?),
    };
    let request = StartRequest { what: start, request: new_request_id(), supersede: args.supersede, by: author() };
    let answer = start_rollout(&mut session, &request, terminal).await?;
    show_started(&mut session, &answer, args.watch, globals.output, terminal).await
}

/// Starts a rollout, and retries if the answer is lost.
pub(in crate::commands) async fn start_rollout(
    session: &mut Session,
    request: &StartRequest,
    terminal: &mut Terminal,
) -> Result<StartResponse, Failure> {
    let send = async |session: &Session| session.client().start_rollout(&session.env, request).await;
    retry_until_answered(session, terminal, send).await
}

/// Prints the started rollout, and follows it with `watch`.
pub(in crate::commands) async fn show_started(
    session: &mut Session,
    answer: &StartResponse,
    watch: bool,
    format: OutputFormat,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let started = match answer {
        StartResponse::Started(started) => started,
        StartResponse::AlreadyThere(there) => {
            terminal.out.answer(there, |out| out.line(nothing_to_start(there)));
            return Ok(Exit::Yes);
        }
    };
    if !watch || format == OutputFormat::Table {
        let env = session.env.clone();
        let line = |out: &mut Out| {
            // A superseding rollout may have the same version.
            let from = started.from.as_ref().filter(|from| **from != started.to);
            let from = from.map(|from| format!("from {from} ")).unwrap_or_default();
            let (id, to, revision) = (started.id, &started.to, started.revision);
            out.line(format_args!("{env} is updated {from}to {to}: rollout {id} (revision {revision})"));
            if let Some(other) = started.superseded {
                out.line(format_args!("rollout {other} was superseded"));
            }
            if !started.changed {
                out.line("the rollout was started by an earlier attempt of this request");
            }
        };
        terminal.out.answer(started, line);
        terminal.out.flush();
    }
    if watch {
        return watch::follow(session, started.id.into(), None, format, terminal).await;
    }
    terminal.notes.note("follow the rollout: muster rollout status --watch");
    Ok(Exit::Yes)
}

/// "all 4 nodes run v1 already: nothing to start"
fn nothing_to_start(AlreadyAtVersionResponse { to, nodes, .. }: &AlreadyAtVersionResponse) -> String {
    match nodes {
        1 => format!("the only node runs {to} already: nothing to start"),
        _ => format!("all {nodes} nodes run {to} already: nothing to start"),
    }
}
