//! `muster drift`: lists nodes that differ from their release.

use jiff::Timestamp;
use muster_core::report::drift::DriftState;
use muster_wire::drift::{Difference, NodeDrift};

use crate::args::{Globals, NodeFilter, node_filter_help};
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, age, count, text};

/// List nodes that differ from their release without a run, with the differences
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!("\
Timed runs find drift: see `run_every` and `drift` of release.yaml. With `drift: report` they change nothing, and the \
differences are listed here until a run removes them. With `drift: repair` a run has repaired them already, and `muster \
runs` lists them.

The drift of a node is unknown, and not none, if its agent is not connected, if it is paused or has not validated its \
desired version, if its release has no timed runs, or if the preview failed. `-o json` lists all nodes.

Exit codes:
  0   no node differs, and the drift of all nodes is known
  1   some nodes differ, and are listed
  2   unknown: no node differs as far as it is known; or no server, or no such environment

Examples:
  muster drift
  muster drift role=web
  muster drift -o json | jq -r '.items[] | select(.drift == \"differs\") | .node'

", node_filter_help!()))]
pub struct Args {
    #[command(flatten)]
    filter: NodeFilter,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.map_err(session.client().drift(&session.env, &args.filter.text()).await)?;
    let now = terminal.now;
    let of = |state: DriftState| page.items.iter().filter(move |node| node.drift == state);
    let (differing, unknown) = (of(DriftState::Differs).count(), of(DriftState::Unknown).count());
    terminal.out.answer(&page, |out| {
        for (index, node) in of(DriftState::Differs).chain(of(DriftState::Unknown)).enumerate() {
            if index > 0 && node.drift == DriftState::Differs {
                out.gap();
            }
            show_node(node, now, out);
        }
    });
    if differing == 0 && unknown == 0 {
        terminal.notes.note(format_args!("no node of {} differs from its release", session.env));
    }
    Ok(match (differing, unknown) {
        (0, 0) => Exit::Yes,
        (0, _) => Exit::CannotTell,
        (_, _) => Exit::No,
    })
}

/// Shows `web1 differs in 1 resource, for 5m` and the differences.
fn show_node(node: &NodeDrift, now: Timestamp, out: &mut Out) {
    let since = node.since.map(|since| format!(", for {}", age(since, now))).unwrap_or_default();
    match (&node.reason, node.count) {
        (Some(reason), _) => out.line(format_args!("{}: unknown: {}", node.node, text::one_line(reason))),
        (None, 0) => out.line(format_args!("{} differs{since}", node.node)),
        (None, resources) => {
            let resources = count(usize::try_from(resources).unwrap_or(usize::MAX), "resource");
            out.line(format_args!("{} differs in {resources}{since}", node.node));
        }
    }
    for difference in &node.differences {
        show_difference(difference, out);
    }
    if let (Some(run), true, DriftState::Differs) = (&node.run, node.differences.is_empty(), node.drift) {
        out.line(format_args!("  muster node logs {} --run {run} has the differences", node.node));
    }
}

pub(super) fn show_difference(Difference { change, diff }: &Difference, out: &mut Out) {
    let place = match (&change.file, change.line) {
        (Some(file), Some(line)) => format!(" ({file}:{line})"),
        (Some(file), None) => format!(" ({file})"),
        (None, _) => String::new(),
    };
    let property = change.property.as_deref().unwrap_or_default();
    let values = format!("{}: {property} is {}, should be {}{place}", change.resource, change.old, change.new);
    out.line(format_args!("  {}", text::one_line(&values)));
    for line in diff.iter().flat_map(|diff| diff.lines()) {
        out.line(format_args!("    {}", text::one_line(line)));
    }
}
