//! `muster runs`: the runs of the whole fleet, and what they failed of.

use jiff::Timestamp;
use muster_core::report::failure_groups::{FailureGroup, GroupMember};
use muster_core::report::{Cause, Outcome, Verdict};
use muster_wire::runs::RunRow;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Out, Table, Terminal, age, duration, plain};

use super::filter_args::{NodeFilter, node_filter_help};
use super::node::show::node_or_host;
use super::rows::{NONE, count};

/// So many names of a group are shown.
const NAMES: usize = 10;

/// List the newest runs of the fleet; with --failed what has failed, the same failures together
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!("\
Failures are the same if resource, file, line and message are, but for the names and addresses of nodes, times and \
identifiers. `muster failures` lists the same nodes one by one.

Exit codes:
  0   they were listed; with --failed: no node has failed
  1   with --failed: some have
  2   cannot tell: no server, no such environment, or a server that has not read its store yet

Examples:
  muster runs --limit 20
  muster runs --failed
  muster runs --failed role=web
  muster runs --node web1

", node_filter_help!()))]
pub struct Args {
    /// The nodes whose last run failed, those together that failed in the same way
    #[arg(long)]
    failed: bool,
    /// Only those of this node
    #[arg(long, value_name = "NODE", value_parser = node_or_host)]
    node: Option<String>,
    /// How many runs at most
    #[arg(long, value_name = "N", default_value_t = 50, conflicts_with = "failed")]
    limit: usize,
    #[command(flatten)]
    filter: NodeFilter,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let mut filter = args.filter.text();
    if let Some(node) = &args.node {
        // By its name or its host name, as elsewhere.
        let detail = session.told(session.client().node(&session.env, node).await)?;
        filter.push_str(&format!(" name={}", detail.row.node));
    }
    let filter = filter.trim();
    let now = terminal.now;
    if !args.failed {
        let page = session.told(session.client().runs(&session.env, filter, args.limit).await)?;
        terminal.out.answer(&page, |out| runs(&page.items, now, out));
        if page.items.is_empty() {
            terminal.notes.note(format_args!("no node of {} has made a run yet", session.env));
        }
        return Ok(Exit::Yes);
    }
    let page = session.told(session.client().failure_groups(&session.env, filter).await)?;
    let none = page.items.is_empty();
    terminal.out.answer(&page, |out| {
        for (place, group) in page.items.iter().enumerate() {
            if place > 0 {
                out.gap();
            }
            failures(group, now, out);
        }
    });
    if none {
        terminal.notes.note(format_args!("no node of {} has failed", session.env));
    }
    Ok(Exit::yes_if(none))
}

fn runs(rows: &[RunRow], now: Timestamp, out: &mut Out) {
    if rows.is_empty() {
        return;
    }
    let mut table = Table::new(["AGO", "NODE", "RUN", "VERSION", "RESULT", "TOOK", "CAUSES AND REASON"]).painted(4);
    for RunRow { node, run, .. } in rows {
        let causes: Vec<String> = run.causes.iter().map(Cause::to_string).collect();
        let causes = if causes.is_empty() { NONE.to_owned() } else { causes.join(", ") };
        let reason = run.reason.as_ref().map(|reason| format!(" → {reason}")).unwrap_or_default();
        table.row([
            age(run.ended, now),
            node.to_string(),
            run.run.to_string(),
            run.version.to_string(),
            result(run.outcome),
            duration(run.ended.duration_since(run.started)),
            plain::one_line(&format!("{causes}{reason}")),
        ]);
    }
    out.table(table);
}

fn result(outcome: Outcome) -> String {
    match outcome {
        Outcome::Configured(result) => result.word().to_owned(),
        Outcome::Previewed(result) => format!("preview: {}", result.word()),
        Outcome::Validated(Verdict::Passed) => "validated".to_owned(),
        Outcome::Validated(Verdict::Failed) => "invalid".to_owned(),
    }
}

/// `37 nodes: Package[nova]: version not found (modules/nova/manifests/init.pp:12)`, and who they are.
fn failures(group: &FailureGroup, now: Timestamp, out: &mut Out) {
    let nodes = &group.nodes;
    out.line(format_args!("{}: {}", count(nodes.len(), "node"), plain::one_line(&group.error.to_string())));
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
        times.push(format!("next try in {}", age(now, next)));
    }
    if !times.is_empty() {
        out.line(format_args!("  {}", times.join(", ")));
    }
}
