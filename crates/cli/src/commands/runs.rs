//! `muster runs`: lists the runs of all nodes. `muster failures`, also `muster runs --failed`: lists failed nodes, grouped by
//! their error.

use jiff::Timestamp;
use muster_core::report::ResourceError;
use muster_core::report::failure_groups::{FailureGroup, GroupMember};
use muster_wire::runs::RunRow;

use crate::args::{Globals, NodeFilter, node_filter_help, node_or_host_arg};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Table, Terminal, age, causes_and_reason, count, duration, run_result, text};

/// List the newest runs of all nodes; with --failed, the failed nodes as `muster failures` does
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!("\
`muster runs --failed` and `muster failures` are the same command: `muster failures --help` describes its answer.

Exit codes:
  0   success; with --failed: no node has failed
  1   with --failed: some nodes have failed
  2   unknown: no server, no such environment, or the server has not loaded its store yet

Examples:
  muster runs --limit 20
  muster runs --failed role=web
  muster runs --node web1

", node_filter_help!()))]
pub struct Args {
    /// Nodes that have failed and were not validated since, grouped by error
    #[arg(long)]
    failed: bool,
    /// Maximum number of runs
    #[arg(long, value_name = "N", default_value_t = 50, conflicts_with = "failed")]
    limit: usize,
    #[command(flatten)]
    nodes: NodeSelection,
}

/// Nodes whose runs or failures are listed.
#[derive(Clone, Debug, clap::Args)]
struct NodeSelection {
    /// Only this node
    #[arg(long, value_name = "NODE", value_parser = node_or_host_arg)]
    node: Option<String>,
    #[command(flatten)]
    filter: NodeFilter,
}

impl NodeSelection {
    async fn filter(&self, session: &Session) -> Result<String, Failure> {
        let mut filter = self.filter.text();
        if let Some(node) = &self.node {
            // The node may be given by its host name.
            let detail = session.map_err(session.client().node(&session.env, node).await)?;
            filter.push_str(&format!(" name={}", detail.row.node));
        }
        Ok(filter.trim().to_owned())
    }
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    if args.failed {
        return list_failures(&args.nodes, globals, terminal).await;
    }
    let session = Session::open(globals).await?;
    let filter = args.nodes.filter(&session).await?;
    let now = terminal.now;
    let page = session.map_err(session.client().runs(&session.env, &filter, args.limit).await)?;
    terminal.out.answer(&page, |out| show_runs(&page.items, now, out));
    if page.items.is_empty() {
        terminal.notes.note(format_args!("no node of {} has run yet", session.env));
    }
    Ok(Exit::Yes)
}

fn show_runs(rows: &[RunRow], now: Timestamp, out: &mut Out) {
    if rows.is_empty() {
        return;
    }
    let mut table =
        Table::new(["AGO", "NODE", "RUN", "VERSION", "RESULT", "TOOK", "CAUSES AND REASON"]).color_column(4);
    for RunRow { node, run, .. } in rows {
        table.row([
            age(run.ended, now),
            node.to_string(),
            run.run.to_string(),
            run.version.to_string(),
            run_result(run.outcome, run.checks),
            duration(run.ended.duration_since(run.started)),
            text::one_line(&causes_and_reason(run)),
        ]);
    }
    out.table(table);
}

/// Number of further errors of a group that are printed.
const SHOWN: usize = 20;

/// Shows `37 nodes: Package[nova]: version not found (modules/nova/manifests/init.pp:12)` and the names of the nodes.
fn show_failures(group: &FailureGroup, now: Timestamp, out: &mut Out) {
    let nodes = &group.nodes;
    out.line(format_args!("{}: {}", count(nodes.len(), "node"), text::one_line(&group.error.to_string())));
    // The first error is that of the group, unless the node has run again since.
    let is_of_group = |first: &ResourceError| (&first.file, first.line) == (&group.error.file, group.error.line);
    let further = group.errors.iter().skip(usize::from(group.errors.first().is_some_and(is_of_group)));
    further
        .clone()
        .take(SHOWN)
        .for_each(|error| out.line(format_args!("  also {}", text::one_line(&error.to_string()))));
    if let (more @ 1.., Some(first)) = (further.count().saturating_sub(SHOWN), nodes.first()) {
        out.line(format_args!("  … and {more} more: muster node show {}", first.node));
    }
    let named = |member: &GroupMember| match member.current {
        Some(current) => format!("{} ({} now)", member.node, current.label()),
        None => member.node.to_string(),
    };
    out.line(format_args!("  {}", nodes.iter().map(named).collect::<Vec<_>>().join(", ")));
    let mut times = Vec::new();
    if let Some(since) = nodes.iter().filter_map(|member| member.since).min() {
        times.push(format!("failed for {}", age(since, now)));
    }
    if let Some(most) = nodes.iter().map(|member| member.attempt).max().filter(|most| *most > 0) {
        times.push(format!("attempt {most}"));
    }
    if let Some(next) = nodes.iter().filter_map(|member: &GroupMember| member.retry).min() {
        times.push(format!("next retry in {}", age(now, next)));
    }
    if !times.is_empty() {
        out.line(format_args!("  {}", times.join(", ")));
    }
}

/// List the nodes that have failed and were not validated since, grouped by their error
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!("\
A node has failed if its applier or its validation failed, if its machine could not be provisioned, or if its agent is \
blocked. It has failed until a validation passes: also while it retries, waits for other nodes, or is unreachable; its present \
state is shown with its name. A node that waits for other nodes and has not failed before is not listed.

Two failures are in one group if resource, file, line and message are equal, except for names and addresses of nodes, \
times and identifiers. `-o json` has the nodes in `items`, and the groups in `groups`. `muster runs --failed` is the same \
command.

Exit codes:
  0   no node has failed
  1   some nodes have failed, and are listed
  2   unknown: no server, no such environment, or the server has not loaded its store yet

Examples:
  muster failures
  muster failures role=web
  muster failures -o json | jq -r '.items[].node'

", node_filter_help!()))]
pub struct FailuresArgs {
    #[command(flatten)]
    nodes: NodeSelection,
}

pub(super) async fn failures(args: &FailuresArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    list_failures(&args.nodes, globals, terminal).await
}

async fn list_failures(nodes: &NodeSelection, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let filter = nodes.filter(&session).await?;
    let list = session.map_err(session.client().failures(&session.env, &filter).await)?;
    let now = terminal.now;
    let none = list.items.is_empty();
    terminal.out.answer(&list, |out| {
        for (index, group) in list.groups.iter().enumerate() {
            if index > 0 {
                out.gap();
            }
            show_failures(group, now, out);
        }
    });
    if none {
        terminal.notes.note(format_args!("no node of {} has failed", session.env));
    }
    Ok(Exit::yes_if(none))
}
