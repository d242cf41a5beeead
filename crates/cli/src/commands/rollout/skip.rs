//! `muster rollout skip`: lets a rollout continue without some nodes.

use muster_core::names::NodeName;
use muster_wire::client::RolloutVerb;
use muster_wire::rollout::OperateRequest;

use crate::args::{Globals, node_or_host_arg};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;
use crate::variables::author;

use super::{RolloutArg, labels, note_if_paused, send};

/// Skip nodes: the rollout continues without them
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A skipped node keeps the version that it has started last until another rollout updates it. It does not hold up its wave, and does not \
count as failed. A skipped node that is down still uses up the budget; `muster rollout slots release` frees its slot.

Exit codes:
  0   skipped
  1   refused: there is no rollout, it has ended, or the node is not part of it
  2   unknown: retry, which is safe

Examples:
  muster rollout skip web7
  muster rollout skip web7 web9 && muster rollout resume")]
pub struct Args {
    /// Names or host names of the nodes
    #[arg(required = true, value_name = "NODE", value_parser = node_or_host_arg)]
    nodes: Vec<String>,
    #[command(flatten)]
    rollout: RolloutArg,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { nodes: args.nodes.clone(), by: author(), ..OperateRequest::default() };
    let done = send(&mut session, terminal, args.rollout.selected(), RolloutVerb::Skip, operate).await?;
    terminal.out.answer(&done, |out| {
        let (id, names) = (done.id, names(&done.nodes, &args.nodes));
        match done.changed {
            true => out.line(format_args!("rollout {id} skips {names} (revision {})", done.revision)),
            false => out.line(format_args!("rollout {id} skips {names} already")),
        }
    });
    note_if_paused(&done, terminal);
    Ok(Exit::Yes)
}

fn names(nodes: &[NodeName], given: &[String]) -> String {
    if nodes.is_empty() { given.join(", ") } else { labels::names(nodes.iter(), false) }
}
