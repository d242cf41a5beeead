//! `muster env apply`: makes the nodes follow a design.

use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use muster_core::names::EnvName;
use muster_wire::design::{ApplyDesign, ApplyDesignResponse};
use muster_wire::operator::NodeRow;
use serde::Serialize;

use crate::args::Globals;
use crate::author::author;
use crate::commands::rows;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Server;
use crate::terminal::Terminal;

use super::input::InputArgs;
use super::wait::{self, Arrival};
use super::{plan_file, plan_view};

/// Make the nodes of an environment follow a design: create, change and remove nodes as it says
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The plan is shown, and carried out exactly so: if the world has moved meanwhile, nothing is done. With --plan it is the \
one that `muster env plan --out` has saved; the directories must still be the same, and --cardinality is as it was.

The directories become a new revision of the design. Each replaces what it brought before; what was written through the \
API stays, and wins. An environment that is not there is created.

A design that leaves no node of an environment that has some is refused without --remove-all: more likely the directory \
is not what you take it for. `muster env destroy` takes an environment down.

Nodes that go leave service before they are stopped. Without --no-wait the command waits until new and changed nodes are \
validated and the others are gone, or until nothing moves any more; whoever does not wait, or stops waiting, changes nothing: it goes on by itself.

Exit codes:
  0   done; or nothing was to do
  1   refused: the design has errors, or the world has moved; or not all nodes were there in time, and they are named
  2   cannot tell whether it was done: ask again, which is safe
  64  there is no such directory

Examples:
  muster env apply prod site
  muster env apply prod site --message 'one more web server' --cardinality web=3
  muster env plan prod site --out plan.json && muster env apply prod site --plan plan.json
  muster env apply prod            # what was changed through the API")]
pub struct Args {
    /// The environment
    #[arg(value_name = "ENV")]
    name: EnvName,
    #[command(flatten)]
    input: InputArgs,
    /// Carry out this plan, or nothing
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Why, for the design's history; who is in MUSTER_AUTHOR, or your name on this machine
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    message: String,
    /// Do it even if no node is left of an environment that has some
    #[arg(long)]
    remove_all: bool,
    /// Show the plan, and do nothing
    #[arg(long, conflicts_with_all = ["wait", "no_wait"])]
    dry_run: bool,
    /// Wait until the nodes are there; this is the default
    #[arg(long, conflicts_with = "no_wait")]
    wait: bool,
    /// Do not wait until the nodes are there
    #[arg(long)]
    no_wait: bool,
    /// How long to wait, such as 90s or 1h30m
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = crate::patience::read)]
    timeout: SignedDuration,
}

/// What was done, and what has become of it, for programs.
#[derive(Debug, Serialize)]
struct Done {
    #[serde(flatten)]
    applied: ApplyDesignResponse,
    #[serde(skip_serializing_if = "Option::is_none")]
    arrival: Option<Arrival>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut server = Server::find(globals)?;
    let env = &args.name;
    let saved = args.plan.as_deref().map(plan_file::read).transpose()?;
    let input = args.input.read(&server, env, saved.as_ref(), &mut terminal.notes).await?;
    let is_saved = saved.is_some();
    let plan = match saved {
        Some(plan) => plan,
        None => {
            let planned = server.client.plan_design(env, &input.design).await;
            let mut planned = planned.map_err(|error| input.failure(&server, error))?;
            input.note(&mut planned.findings, &mut terminal.notes);
            planned.plan
        }
    };
    if args.dry_run {
        terminal.out.answer(&plan, |out| plan_view::show(&plan, out));
        return Ok(Exit::Yes);
    }
    // Before it is done, so that it can be seen what goes on.
    if globals.output == crate::args::Format::Table {
        plan_view::show(&plan, &mut terminal.out);
        terminal.out.flush();
    }
    let apply = ApplyDesign {
        design: input.design.clone(),
        message: args.message.clone(),
        author: Some(author()),
        plan: Some(plan),
        remove_all: args.remove_all,
    };
    let mut applied = server.client.apply_design(env, &apply).await.map_err(|error| input.failure(&server, error))?;
    // They have been shown with the plan, if it was made just now.
    if is_saved {
        input.note(&mut applied.findings, &mut terminal.notes);
    }
    let arrival = if args.no_wait || !applied.changed {
        None
    } else {
        let patience = Duration::try_from(args.timeout).unwrap_or_default();
        Some(wait::until_there(&mut server, env, &applied.plan, applied.revision, patience, &mut terminal.notes).await?)
    };
    let done = Done { applied, arrival };
    let now = terminal.now;
    terminal.out.answer(&done, |out| {
        let ApplyDesignResponse { design, changed, revision, .. } = &done.applied;
        if !changed {
            return;
        }
        out.gap();
        out.line(format_args!("{env} follows design {design} (revision {revision})"));
        if let Some(Arrival { missing, leaving, .. }) = &done.arrival {
            let open: Vec<NodeRow> = missing.iter().chain(leaving).cloned().collect();
            if !open.is_empty() {
                out.gap();
                out.table(rows::table(&open, now));
            }
        }
    });
    let Some(arrival) = &done.arrival else { return Ok(Exit::Yes) };
    if arrival.no_version {
        terminal
            .notes
            .note("no version was chosen yet, so the nodes have nothing to run: muster trigger-update VERSION");
    } else if arrival.stuck {
        terminal.notes.note("they will not get there by themselves: muster node show NODE says what is wrong");
    } else if !arrival.there {
        terminal.notes.note("not all nodes are there; it goes on by itself, and `muster status` shows how far it is");
    }
    Ok(Exit::yes_if(arrival.there || arrival.no_version))
}
