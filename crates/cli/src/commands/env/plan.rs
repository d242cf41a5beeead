//! `muster env plan`: what applying a design would do.

use std::path::PathBuf;

use muster_core::names::EnvName;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Server;
use crate::terminal::Terminal;

use super::input::InputArgs;
use super::{plan_file, plan_view};

/// Show what applying a design would do: which nodes are created, changed, removed and kept
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Nothing is changed. `+` is created, `~` changed, `-` removed, `=` kept. The plan is made by the server, from the design \
that is given, the one that the nodes follow, and the nodes that there are.

A plan that was saved with --out is carried out by `muster env apply --plan FILE`, exactly so or not at all.

Exit codes:
  0   it was shown; with --detailed-exitcode: there is nothing to do
  1   the design has errors, which are shown
  2   cannot tell: the server is not there, or is not up to date
  3   with --detailed-exitcode: there are changes
  64  there is no such directory

Examples:
  muster env plan prod site
  muster env plan prod site --cardinality web=3
  muster env plan prod site --out plan.json && muster env apply prod site --plan plan.json
  muster env plan prod site --detailed-exitcode || echo 'not as it is written'")]
pub struct Args {
    /// The environment
    #[arg(value_name = "ENV")]
    name: EnvName,
    #[command(flatten)]
    input: InputArgs,
    /// Tell by the exit code whether there is something to do
    #[arg(long)]
    detailed_exitcode: bool,
    /// Save the plan, for apply --plan
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let server = Server::find(globals)?;
    let input = args.input.read(&server, &args.name, None, &mut terminal.notes).await?;
    let planned = server.client.plan_design(&args.name, &input.design).await;
    let mut planned = planned.map_err(|error| input.failure(&server, error))?;
    input.note(&mut planned.findings, &mut terminal.notes);
    if let Some(path) = &args.out {
        plan_file::write(path, &planned.plan)?;
    }
    terminal.out.answer(&planned, |out| plan_view::show(&planned.plan, out));
    if let Some(path) = &args.out {
        terminal.notes.note(format_args!("the plan is in {}; apply --plan carries it out", path.display()));
    }
    Ok(if args.detailed_exitcode && !planned.plan.is_empty() { Exit::Changes } else { Exit::Yes })
}
