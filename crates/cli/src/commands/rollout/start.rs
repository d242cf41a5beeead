//! `muster rollout start`: what was planned, begun.

use std::path::PathBuf;

use muster_core::names::Version;
use muster_wire::request::new_request_id;
use muster_wire::rollout::{AlreadyAtVersion, StartRequest, StartResponse, StartTarget};

use crate::args::{Format, Globals};
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

use super::asking::until_answered;
use super::how::How;
use super::{plan_file, watch};

/// Start a rollout: in the environment's own way, or exactly as a plan says
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
With --plan, exactly that plan is carried out; if the world has moved since it was made, it is refused, and it is said \
how. While another rollout is under way, a start is refused unless --supersede says that it is meant: then that one ends, \
and every node goes straight to the newer version when its turn comes.

Exit codes:
  0   it has begun, or every node runs the version already; with --watch: it is completed
  1   refused: no such release, an older release, a plan that the world has outrun, another rollout under way; with
      --watch: it failed
  2   cannot tell: ask again, which is safe

Examples:
  muster rollout start v3
  muster rollout start v3 --plan v3.plan
  muster rollout start v3 --strategy careful.yaml --watch
  muster rollout start v4 --supersede")]
pub struct Args {
    /// The version, such as v3; its release must be there
    version: Version,
    /// Carry out exactly this plan, which `muster rollout plan` made
    #[arg(long, value_name = "FILE", conflicts_with_all = ["strategy", "seed", "allow_older", "at_once"])]
    plan: Option<PathBuf>,
    #[command(flatten)]
    how: How,
    /// In place of the rollout that is under way
    #[arg(long)]
    supersede: bool,
    /// Follow it to its end
    #[arg(long)]
    watch: bool,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    // Before anybody is asked: a file that is no plan is nobody's business.
    let plan = args.plan.as_deref().map(plan_file::read).transpose()?;
    let mut session = Session::open(globals).await?;
    let what = match plan {
        Some(plan) if plan.to != args.version => {
            let (to, version) = (&plan.to, &args.version);
            return Err(Failure::usage(format!("the plan goes to {to}, and {version} was asked for")));
        }
        Some(plan) if plan.env != session.env => {
            let (env, asked) = (&plan.env, &session.env);
            return Err(Failure::usage(format!("the plan is one of {env}, and {asked} is asked")));
        }
        Some(plan) => StartTarget::Plan(Box::new(plan)),
        None => StartTarget::Now(args.how.request(&args.version, &session, &mut terminal.notes).await?),
    };
    let request = StartRequest { what, request: new_request_id(), supersede: args.supersede, by: author() };
    let answer = begin(&mut session, &request, terminal).await?;
    tell(&mut session, &answer, args.watch, globals.output, terminal).await
}

/// Starts it, and asks again if the answer is lost.
pub(in crate::commands) async fn begin(
    session: &mut Session,
    request: &StartRequest,
    terminal: &mut Terminal,
) -> Result<StartResponse, Failure> {
    let ask = async |session: &Session| session.client().start_rollout(&session.env, request).await;
    until_answered(session, terminal, ask).await
}

/// Says what has begun, or follows it.
pub(in crate::commands) async fn tell(
    session: &mut Session,
    answer: &StartResponse,
    watch: bool,
    format: Format,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let started = match answer {
        StartResponse::Started(started) => started,
        StartResponse::AlreadyThere(there) => {
            terminal.out.answer(there, |out| out.line(nothing_to_start(there)));
            return Ok(Exit::Yes);
        }
    };
    if !watch || format == Format::Table {
        let env = session.env.clone();
        let line = |out: &mut crate::terminal::Out| {
            // One that takes another's place may go where that one went.
            let from = started.from.as_ref().filter(|from| **from != started.to);
            let from = from.map(|from| format!("from {from} ")).unwrap_or_default();
            let (id, to, revision) = (started.id, &started.to, started.revision);
            out.line(format_args!("{env} goes {from}to {to}: rollout {id} (revision {revision})"));
            if let Some(other) = started.superseded {
                out.line(format_args!("rollout {other} ended with this"));
            }
            if !started.changed {
                out.line("the same request had started it already");
            }
        };
        terminal.out.answer(started, line);
        terminal.out.flush();
    }
    if watch {
        return watch::follow(session, started.id.into(), None, format, terminal).await;
    }
    terminal.notes.note("muster rollout status --watch follows it");
    Ok(Exit::Yes)
}

/// "all 4 nodes run v1 already: nothing to start"
fn nothing_to_start(AlreadyAtVersion { to, nodes, .. }: &AlreadyAtVersion) -> String {
    match nodes {
        1 => format!("the only node runs {to} already: nothing to start"),
        _ => format!("all {nodes} nodes run {to} already: nothing to start"),
    }
}
