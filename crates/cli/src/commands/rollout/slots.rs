//! `muster rollout slots …`: lists and releases the slots of the rollout budget.

use muster_wire::client::new_request_id;
use muster_wire::rollout::OperateRequest;

use crate::args::{Globals, node_or_host_arg};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Table, Terminal, age};
use crate::variables::author;

use super::retry_until_answered;
use super::status_view::time_left;

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    List(ListArgs),
    Release(ReleaseArgs),
}

/// List the nodes that hold a slot of the budget
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A node holds a slot from its start until it is healthy. A node that is not healthy at its DEADLINE counts as failed; nodes \
that have failed or are soaking have none. FENCE is the revision of the grant: reports for an older grant are ignored.

Exit codes:
  0   success
  1   the environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster rollout slots list
  muster rollout slots list -o json | jq -r '.items[].node'")]
pub struct ListArgs {}

/// Release the slot of a node
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
For a node that stays down: another node can be updated in its place. Until the rollout ends, one more node than the budget \
may be unavailable.

Exit codes:
  0   released
  1   refused: there is no rollout, or the node holds no slot
  2   unknown: retry, which is safe

Examples:
  muster rollout slots release web7")]
pub struct ReleaseArgs {
    /// Name or host name of the node
    #[arg(value_parser = node_or_host_arg)]
    node: String,
}

pub(in crate::commands) async fn list(
    _: &ListArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.map_err(session.client().slots(&session.env).await)?;
    let now = terminal.now;
    terminal.out.answer(&page, |out| {
        if page.items.is_empty() {
            return;
        }
        let headings = ["NODE", "ROLE", "ROLLOUT", "VERSION", "STATE", "STARTED", "DEADLINE", "FENCE"];
        let mut table = Table::new(headings).color_column(4);
        for slot in &page.items {
            table.row([
                slot.node.to_string(),
                slot.role.to_string(),
                slot.rollout.to_string(),
                slot.version.to_string(),
                slot.state.label().to_owned(),
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

pub(in crate::commands) async fn release(
    args: &ReleaseArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let operate = OperateRequest { request: new_request_id(), by: author(), ..OperateRequest::default() };
    let send = async |session: &Session| session.client().release_slot(&session.env, &args.node, &operate).await;
    let done = retry_until_answered(&mut session, terminal, send).await?;
    terminal.out.answer(&done, |out| {
        let (id, node) = (done.id, done.nodes.first().map_or_else(|| args.node.clone(), ToString::to_string));
        match done.changed {
            true => out.line(format_args!(
                "rollout {id}: {node} no longer counts against the budget (revision {})",
                done.revision
            )),
            false => out.line(format_args!("rollout {id}: {node} did not count against the budget already")),
        }
    });
    Ok(Exit::Yes)
}
