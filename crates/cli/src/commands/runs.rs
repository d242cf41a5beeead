//! `muster runs`: lists the runs of all nodes, and groups failed nodes by their error. `muster failures`: lists failed nodes.

use jiff::Timestamp;
use muster_core::report::Cause;
use muster_core::report::failure_groups::{FailureGroup, GroupMember};
use muster_wire::runs::RunRow;

use crate::args::{Globals, NodeFilter, node_filter_help, node_or_host_arg};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{NONE, Out, Table, Terminal, age, count, duration, node_table, run_result, text};

/// Names that are listed in one group.
const NAMES: usize = 10;

/// List the newest runs of all nodes; with --failed, group failed nodes by their error
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!("\
Two failures are in one group if resource, file, line and message are equal, except for names and addresses of nodes, \
times and identifiers. `muster failures` lists the same nodes one by one.

Exit codes:
  0   success; with --failed: no node has failed
  1   with --failed: some nodes have failed
  2   unknown: no server, no such environment, or the server has not loaded its store yet

Examples:
  muster runs --limit 20
  muster runs --failed
  muster runs --failed role=web
  muster runs --node web1

", node_filter_help!()))]
pub struct Args {
    /// Nodes whose last run failed, grouped by error
    #[arg(long)]
    failed: bool,
    /// Only runs of this node
    #[arg(long, value_name = "NODE", value_parser = node_or_host_arg)]
    node: Option<String>,
    /// Maximum number of runs
    #[arg(long, value_name = "N", default_value_t = 50, conflicts_with = "failed")]
    limit: usize,
    #[command(flatten)]
    filter: NodeFilter,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let mut filter = args.filter.text();
    if let Some(node) = &args.node {
        // The node may be given by its host name.
        let detail = session.map_err(session.client().node(&session.env, node).await)?;
        filter.push_str(&format!(" name={}", detail.row.node));
    }
    let filter = filter.trim();
    let now = terminal.now;
    if !args.failed {
        let page = session.map_err(session.client().runs(&session.env, filter, args.limit).await)?;
        terminal.out.answer(&page, |out| show_runs(&page.items, now, out));
        if page.items.is_empty() {
            terminal.notes.note(format_args!("no node of {} has run yet", session.env));
        }
        return Ok(Exit::Yes);
    }
    let page = session.map_err(session.client().failure_groups(&session.env, filter).await)?;
    let none = page.items.is_empty();
    terminal.out.answer(&page, |out| {
        for (index, group) in page.items.iter().enumerate() {
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

fn show_runs(rows: &[RunRow], now: Timestamp, out: &mut Out) {
    if rows.is_empty() {
        return;
    }
    let mut table =
        Table::new(["AGO", "NODE", "RUN", "VERSION", "RESULT", "TOOK", "CAUSES AND REASON"]).color_column(4);
    for RunRow { node, run, .. } in rows {
        let causes: Vec<String> = run.causes.iter().map(Cause::to_string).collect();
        let causes = if causes.is_empty() { NONE.to_owned() } else { causes.join(", ") };
        let reason = run.reason.as_ref().map(|reason| format!(" → {reason}")).unwrap_or_default();
        table.row([
            age(run.ended, now),
            node.to_string(),
            run.run.to_string(),
            run.version.to_string(),
            run_result(run.outcome),
            duration(run.ended.duration_since(run.started)),
            text::one_line(&format!("{causes}{reason}")),
        ]);
    }
    out.table(table);
}

/// Shows `37 nodes: Package[nova]: version not found (modules/nova/manifests/init.pp:12)` and the names of the nodes.
fn show_failures(group: &FailureGroup, now: Timestamp, out: &mut Out) {
    let nodes = &group.nodes;
    out.line(format_args!("{}: {}", count(nodes.len(), "node"), text::one_line(&group.error.to_string())));
    let mut names: Vec<String> = nodes.iter().take(NAMES).map(|member| member.node.to_string()).collect();
    if nodes.len() > NAMES {
        names.push(format!("and {} more", nodes.len() - NAMES));
    }
    out.line(format_args!("  {}", names.join(", ")));
    let mut times = Vec::new();
    if let Some(since) = nodes.iter().filter_map(|member| member.since).min() {
        times.push(format!("since {}", age(since, now)));
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

/// List the nodes that have failed, with the reason
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A node has failed if its applier or its validation failed, if its machine could not be provisioned, or if its agent is \
blocked. A node that waits for other nodes has not failed.

Exit codes:
  0   no node has failed
  1   some nodes have failed, and are listed
  2   unknown: no server, no such environment, or the server has not loaded its store yet

Examples:
  muster failures
  muster failures -o json | jq -r '.items[].node'")]
pub struct FailuresArgs {}

pub(super) async fn failures(_: &FailuresArgs, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.map_err(session.client().failures(&session.env).await)?;
    let now = terminal.now;
    let none = page.items.is_empty();
    terminal.out.answer(&page, |out| {
        if !none {
            out.table(node_table(&page.items, now));
        }
    });
    if none {
        terminal.notes.note(format_args!("no node of {} has failed", session.env));
    }
    Ok(Exit::yes_if(none))
}
