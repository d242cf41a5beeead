//! `muster rollout retry`: starts the version on failed nodes again.

use muster_wire::client::RolloutVerb;
use muster_wire::rollout::OperateRequest;

use crate::args::{Globals, node_or_host_arg};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Terminal, count};
use crate::variables::author;

use super::{RolloutArg, labels, note_if_paused, send};

/// Start the version on failed nodes again
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Each node starts again, with a new deadline. A rollout that was paused because of failures or missing progress is \
resumed; one that an operator has paused stays paused.

Exit codes:
  0   started again
  1   refused: there is no rollout, it has ended, the node does not exist, or has not failed
  2   unknown: retry, which is safe

Examples:
  muster rollout retry --failed
  muster rollout retry web7")]
pub struct Args {
    /// Names or host names of the nodes
    #[arg(value_name = "NODE", value_parser = node_or_host_arg)]
    nodes: Vec<String>,
    /// All failed nodes
    #[arg(long, conflicts_with = "nodes")]
    failed: bool,
    #[command(flatten)]
    rollout: RolloutArg,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    if args.nodes.is_empty() && !args.failed {
        return Err(Failure::usage("no nodes were given: name them, or use --failed for all failed nodes"));
    }
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { nodes: args.nodes.clone(), by: author(), ..OperateRequest::default() };
    let done = send(&mut session, terminal, args.rollout.selected(), RolloutVerb::Retry, operate).await?;
    terminal.out.answer(&done, |out| {
        let id = done.id;
        match (done.changed, done.nodes.len()) {
            (true, 0) => out.line(format_args!("rollout {id}: retries all failed nodes (revision {})", done.revision)),
            (true, number) => {
                let (nodes, names) = (count(number, "node"), labels::names(done.nodes.iter(), false));
                out.line(format_args!("rollout {id}: retries {nodes}: {names} (revision {})", done.revision));
            }
            (false, _) => out.line(format_args!("rollout {id}: no nodes to retry")),
        }
    });
    note_if_paused(&done, terminal);
    Ok(Exit::Yes)
}
