//! `muster node cordon`, `uncordon`, `retire` and `unretire`: take nodes out of rollouts, or out of the fleet.

use muster_core::node::policy::NodePolicy;
use muster_wire::operator::NodeDetail;
use muster_wire::policy::{PolicyResponse, SetPolicy};
use serde::Serialize;

use crate::args::{Globals, node_or_host_arg};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Terminal, age, count};
use crate::variables::author;

/// Names of nodes in a question.
const SHOWN_NODES: usize = 5;

/// Cordon nodes: rollouts do not move them, and they lead no role
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A cordoned node keeps its version and stays active. Runs, retries and validations of that version continue. It uses no \
budget, and a rollout that has started it already continues on it. Leadership moves to another node of the role; a role \
without another node has no leader.

A rollout waits for cordoned nodes. `muster rollout skip NODE` lets it complete without them.

A second cordon is a no-op: the first author, reason and time stay.

Exit codes:
  0   cordoned
  1   refused: a node does not exist, or is retired
  2   unknown: retry, which is safe

Examples:
  muster node cordon web1 --reason 'disk swap'
  muster node cordon web1 web2 --reason 'rack r1 is moved on Friday'
  muster node list policy=cordoned")]
pub struct CordonArgs {
    #[command(flatten)]
    nodes: NodeArgs,
    /// Reason, shown with the nodes
    #[arg(long, value_name = "TEXT", alias = "why")]
    reason: String,
}

/// End a cordon; a no-op if there is none
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A rollout that waits for the node moves it then.

Exit codes:
  0   in service
  1   refused: a node does not exist, or is retired
  2   unknown: retry, which is safe

Examples:
  muster node uncordon web1")]
pub struct UncordonArgs {
    #[command(flatten)]
    nodes: NodeArgs,
}

/// Retire nodes: drain them, release their machines and remove their keys
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A retired node leaves its role at once, as a node that is removed from the design. Its machine is released when all nodes \
that looked it up have run without it, after two minutes at the latest; then its keys are removed. `muster node show NODE` shows \
what it waits for.

The node stays retired: `muster env plan` lists it, and `muster env apply` does not bring it back, until \
`muster node unretire`.

Asks for confirmation; without a terminal --yes is required.

Exit codes:
  0   retired, and being drained
  1   refused: a node does not exist; or not confirmed
  2   unknown: retry, which is safe
  64  there is no terminal to ask

Examples:
  muster node retire web1 --reason 'end of lease'
  muster node retire web1 web2 --dry-run
  muster node retire web1 --yes")]
pub struct RetireArgs {
    #[command(flatten)]
    nodes: NodeArgs,
    /// Reason, shown with the nodes
    #[arg(long, value_name = "TEXT", alias = "why", default_value = "", hide_default_value = true)]
    reason: String,
    /// Retire without asking
    #[arg(short, long)]
    yes: bool,
    /// Show what would be retired, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Let the design bring retired nodes back; a no-op for a node in service
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A node that the applied design has is created again with a new machine. One that is still being drained returns to service.

Exit codes:
  0   not retired any more
  1   refused: a node does not exist, or is cordoned
  2   unknown: retry, which is safe

Examples:
  muster node unretire web1")]
pub struct UnretireArgs {
    #[command(flatten)]
    nodes: NodeArgs,
}

#[derive(Clone, Debug, clap::Args)]
struct NodeArgs {
    /// Names or host names of the nodes
    #[arg(required = true, value_name = "NODE", value_parser = node_or_host_arg)]
    nodes: Vec<String>,
}

/// Answer for several nodes.
#[derive(Debug, Serialize)]
struct Items<T> {
    items: Vec<T>,
}

pub(in crate::commands) async fn cordon(
    args: &CordonArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    find(&session, &args.nodes).await?;
    let set = SetPolicy { policy: NodePolicy::Cordoned, reason: args.reason.clone() };
    set_policy(&session, &args.nodes, &set, terminal).await
}

pub(in crate::commands) async fn retire(
    args: &RetireArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let details = find(&session, &args.nodes).await?;
    if args.dry_run {
        terminal.out.answer(&Items { items: details.iter().map(|detail| &detail.row).collect() }, |out| {
            for NodeDetail { row, machine, .. } in &details {
                let active = if row.active { "leave" } else { "not come back to" };
                let machine = machine.as_ref().map_or_else(
                    || "it has no machine; its keys would be removed".to_owned(),
                    |machine| format!("its machine (driver {}) would be released and its keys removed", machine.driver),
                );
                out.line(format_args!("{} would {active} role {}; {machine}", row.node, row.role));
            }
        });
        return Ok(Exit::Yes);
    }
    if !args.yes {
        let names: Vec<&str> = details.iter().map(|detail| detail.row.node.as_str()).collect();
        let nodes = match names[..] {
            [only] => only.to_owned(),
            _ => {
                let more = if names.len() > SHOWN_NODES { ", …" } else { "" };
                let shown = names.iter().take(SHOWN_NODES).copied().collect::<Vec<_>>().join(", ");
                format!("{} ({shown}{more})", count(names.len(), "node"))
            }
        };
        let env = &session.env;
        terminal.notes.confirm(format_args!("{nodes} will be drained and removed from {env}. Continue?"), "--yes")?;
    }
    let set = SetPolicy { policy: NodePolicy::Retired, reason: args.reason.clone() };
    set_policy(&session, &args.nodes, &set, terminal).await
}

pub(in crate::commands) async fn uncordon(
    args: &UncordonArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    end_policy(&args.nodes, NodePolicy::Cordoned, globals, terminal).await
}

pub(in crate::commands) async fn unretire(
    args: &UnretireArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    end_policy(&args.nodes, NodePolicy::Retired, globals, terminal).await
}

/// Finds all nodes before the first is changed.
async fn find(session: &Session, nodes: &NodeArgs) -> Result<Vec<NodeDetail>, Failure> {
    let mut details = Vec::new();
    for node in &nodes.nodes {
        details.push(session.map_err(session.client().node(&session.env, node).await)?);
    }
    Ok(details)
}

async fn set_policy(
    session: &Session,
    nodes: &NodeArgs,
    set: &SetPolicy,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mut items = Vec::new();
    for node in &nodes.nodes {
        items.push(session.map_err(session.client().set_policy(&session.env, node, set, &author()).await)?);
    }
    let (answer, now) = (Items { items }, terminal.now);
    terminal.out.answer(&answer, |out| {
        for PolicyResponse { node, policy, changed, revision, .. } in &answer.items {
            let Some(policy) = policy else { continue };
            match changed {
                true => out.line(format_args!("{node} is {} (revision {revision})", policy.policy.word())),
                false => out.line(format_args!("{node} is already {policy} ({} ago)", age(policy.since, now))),
            }
        }
    });
    if set.policy == NodePolicy::Retired && answer.items.iter().any(|item| item.changed) {
        terminal.notes.note(
            "a machine of a driver is drained first, as `muster node show NODE` shows; one that joined with a token has left",
        );
    }
    Ok(Exit::Yes)
}

async fn end_policy(
    nodes: &NodeArgs,
    policy: NodePolicy,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let mut items = Vec::new();
    for node in &nodes.nodes {
        items.push(session.map_err(session.client().end_policy(&session.env, node, policy, &author()).await)?);
    }
    let answer = Items { items };
    terminal.out.answer(&answer, |out| {
        for PolicyResponse { node, before, revision, .. } in &answer.items {
            match before {
                Some(before) => out.line(format_args!("{node} is no longer {before} (revision {revision})")),
                None => out.line(format_args!("{node} was not {}", policy.word())),
            }
        }
    });
    Ok(Exit::Yes)
}
