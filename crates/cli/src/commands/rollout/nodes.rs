//! `muster rollout skip` and `muster rollout retry`: what is done with single nodes.

use muster_core::names::NodeName;
use muster_core::rollout::record::RolloutPhase;
use muster_wire::client::RolloutVerb;
use muster_wire::rollout::{OperateRequest, OperateResponse};

use crate::args::Globals;
use crate::author::author;
use crate::commands::node::show::node_or_host;
use crate::commands::rows::count;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::Terminal;

use super::asking::say;
use super::which::Which;
use super::words;

/// Set nodes aside: the rollout goes on without them
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A node that was set aside stays at the version that it was told last, until another rollout moves it. It does not hold \
its wave up, and does not count as failed. While it is down it uses the budget up all the same, as every node does that is \
down: `muster rollout slots release` lets others move nevertheless.

Exit codes:
  0   they are set aside
  1   refused: there is no rollout, it has ended, or there is no such node in it
  2   cannot tell: ask again, which is safe

Examples:
  muster rollout skip web7
  muster rollout skip web7 web9 && muster rollout resume")]
pub struct SkipArgs {
    /// The nodes, by name or host name
    #[arg(required = true, value_name = "NODE", value_parser = node_or_host)]
    nodes: Vec<String>,
    #[command(flatten)]
    which: Which,
}

/// Grant nodes the version once more
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Each gets a new grant, with a new deadline. A rollout that stopped because of failures, or because nothing got better, \
goes on with it; one that a person has paused stays so.

Exit codes:
  0   they are granted once more
  1   refused: there is no rollout, it has ended, or there is no such node, or it has not failed
  2   cannot tell: ask again, which is safe

Examples:
  muster rollout retry --failed
  muster rollout retry web7")]
pub struct RetryArgs {
    /// The nodes, by name or host name
    #[arg(value_name = "NODE", value_parser = node_or_host)]
    nodes: Vec<String>,
    /// All that have failed
    #[arg(long, conflicts_with = "nodes")]
    failed: bool,
    #[command(flatten)]
    which: Which,
}

pub(in crate::commands) async fn skip(
    args: &SkipArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { nodes: args.nodes.clone(), by: author(), ..OperateRequest::default() };
    let done = say(&mut session, terminal, args.which.rollout(), RolloutVerb::Skip, operate).await?;
    terminal.out.answer(&done, |out| {
        let (id, names) = (done.id, named(&done.nodes, &args.nodes));
        match done.changed {
            true => out.line(format_args!("rollout {id} goes on without {names} (revision {})", done.revision)),
            false => out.line(format_args!("rollout {id} goes on without {names} already")),
        }
    });
    still_paused(&done, terminal);
    Ok(Exit::Yes)
}

pub(in crate::commands) async fn retry(
    args: &RetryArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    if args.nodes.is_empty() && !args.failed {
        return Err(Failure::usage("which nodes? Name them, or say --failed for all that have failed"));
    }
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { nodes: args.nodes.clone(), by: author(), ..OperateRequest::default() };
    let done = say(&mut session, terminal, args.which.rollout(), RolloutVerb::Retry, operate).await?;
    terminal.out.answer(&done, |out| {
        let id = done.id;
        match (done.changed, done.nodes.len()) {
            (true, 0) => {
                let revision = done.revision;
                out.line(format_args!("rollout {id}: what has failed is granted once more (revision {revision})"));
            }
            (true, number) => {
                let (nodes, names) = (count(number, "node"), words::names(done.nodes.iter(), false));
                out.line(format_args!("rollout {id}: once more for {nodes}: {names} (revision {})", done.revision));
            }
            (false, _) => out.line(format_args!("rollout {id}: there is nothing to grant once more")),
        }
    });
    still_paused(&done, terminal);
    Ok(Exit::Yes)
}

fn named(nodes: &[NodeName], typed: &[String]) -> String {
    if nodes.is_empty() { typed.join(", ") } else { words::names(nodes.iter(), false) }
}

/// What was said takes effect when the rollout goes on. Says whether that has to be waited for.
pub(super) fn still_paused(done: &OperateResponse, terminal: &mut Terminal) -> bool {
    let is_paused = matches!(done.phase, RolloutPhase::Paused { .. });
    if is_paused {
        terminal.notes.note("the rollout is paused; muster rollout resume lets it go on");
    }
    is_paused
}
