//! `muster rollout slots …`: who uses the budget up.

use muster_core::rollout::progress::RolloutNodeState;
use muster_wire::request::new_request_id;
use muster_wire::rollout::OperateRequest;

use crate::args::Globals;
use crate::author::author;
use crate::commands::node::show::node_or_host;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Table, Terminal, age};

use super::asking::until_answered;
use super::status_view::time_left;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    List(ListArgs),
    Release(ReleaseArgs),
}

/// List the nodes that were granted a version and use the budget up
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A node holds its slot from its grant until it is healthy. DEADLINE is when it counts as failed if it is not by then; one \
that has failed, or is watched already, has none. FENCE is the revision of the grant: what the node answers to \
an older one does not count.

Exit codes:
  0   they were listed
  1   there is no such environment
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster rollout slots list
  muster rollout slots list -o json | jq -r '.items[].node'")]
pub struct ListArgs {}

/// Let a node no longer count for the budget
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
For a node that will not come back soon: another one may go in its place, so that more nodes are unavailable than the \
budget says, by this one, until the rollout has ended.

Exit codes:
  0   its slot is free
  1   refused: there is no rollout, or the node holds no slot
  2   cannot tell: ask again, which is safe

Examples:
  muster rollout slots release web7")]
pub struct ReleaseArgs {
    /// The node, by name or host name
    #[arg(value_parser = node_or_host)]
    node: String,
}

pub(in crate::commands) async fn list(
    _: &ListArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.told(session.client().slots(&session.env).await)?;
    let now = terminal.now;
    terminal.out.answer(&page, |out| {
        if page.items.is_empty() {
            return;
        }
        let headings = ["NODE", "ROLE", "ROLLOUT", "VERSION", "STATE", "GRANTED", "DEADLINE", "FENCE"];
        let mut table = Table::new(headings).painted(4);
        for slot in &page.items {
            table.row([
                slot.node.to_string(),
                slot.role.to_string(),
                slot.rollout.to_string(),
                slot.version.to_string(),
                state(&slot.state),
                age(slot.granted, now),
                time_left(slot.deadline, now),
                slot.fence.to_string(),
            ]);
        }
        out.table(table);
    });
    if page.items.is_empty() {
        terminal.notes.note(format_args!("no node of {} holds a slot", session.env));
    }
    Ok(Exit::Yes)
}

fn state(state: &RolloutNodeState) -> String {
    state.word().to_owned()
}

pub(in crate::commands) async fn release(
    args: &ReleaseArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { request: new_request_id(), by: author(), ..OperateRequest::default() };
    let ask = async |session: &Session| session.client().release_slot(&session.env, &args.node, &operate).await;
    let done = until_answered(&mut session, terminal, ask).await?;
    terminal.out.answer(&done, |out| {
        let (id, node) = (done.id, done.nodes.first().map_or_else(|| args.node.clone(), ToString::to_string));
        match done.changed {
            true => out.line(format_args!(
                "rollout {id}: {node} no longer counts for the budget (revision {})",
                done.revision
            )),
            false => out.line(format_args!("rollout {id}: {node} did not count for the budget already")),
        }
    });
    Ok(Exit::Yes)
}
