//! `muster node …`: lists, shows and runs nodes, prints their logs, and sets their policy.

pub(super) mod logs;
pub(super) mod policy;
pub(super) mod run;
mod run_many;
pub(super) mod show;

use jiff::Timestamp;
use muster_wire::operator::{NodeRow, Page};

use crate::args::{Globals, NodeFilter, node_filter_help};
use crate::commands::up::FleetTranscript;
use crate::commands::watch::{WatchedAnswer, watch};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, node_list_table};

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    List(ListArgs),
    Show(show::Args),
    Logs(logs::Args),
    Run(run::Args),
    Cordon(policy::CordonArgs),
    Uncordon(policy::UncordonArgs),
    Retire(policy::RetireArgs),
    Unretire(policy::UnretireArgs),
}

/// List the nodes with state, version, and the reason for not being validated
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!(node_filter_help!(), "

Exit codes:
  0   success
  1   the environment does not exist
  2   unknown: the server cannot be reached, or is not up to date
  64  the filter is invalid

Examples:
  muster node list
  muster node list --watch state!=validated
  muster node list role=web state!=validated
  muster node list label.rack=r1,r2 -o json | jq -r '.items[].node'"))]
pub struct ListArgs {
    #[command(flatten)]
    filter: NodeFilter,
    /// Show every change until Ctrl-C: redrawn on a terminal, one line per change elsewhere
    #[arg(long)]
    watch: bool,
}

impl WatchedAnswer for Page<NodeRow> {
    type Transcript = FleetTranscript;

    fn show(&self, now: Timestamp, out: &mut Out) {
        out.table(node_list_table(&self.items, now));
    }

    fn changes(&self, transcript: &mut FleetTranscript, now: Timestamp) -> Vec<String> {
        transcript.changes(&self.items, now)
    }
}

pub(super) async fn list(args: &ListArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    if args.watch {
        let (filter, transcript) =
            (args.filter.text(), FleetTranscript::of_list(terminal.now, !args.filter.is_empty()));
        let request = async |session: &Session| session.client().nodes_of(&session.env, &filter).await;
        return watch(session, globals, terminal, transcript, request).await;
    }
    let page = session.map_err(session.client().nodes_of(&session.env, &args.filter.text()).await)?;
    let now = terminal.now;
    let none = page.items.is_empty();
    terminal.out.answer(&page, |out| {
        if !none {
            out.table(node_list_table(&page.items, now));
        }
    });
    if none {
        let text = if args.filter.is_empty() { "has no nodes yet" } else { "has no matching nodes" };
        terminal.notes.note(format_args!("{} {text}", session.env));
    }
    Ok(Exit::Yes)
}
