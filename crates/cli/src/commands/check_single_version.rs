//! `muster check-single-version`: whether a version runs, and no other.

use std::collections::BTreeMap;

use muster_core::names::{NodeName, Version};
use muster_core::node::status::NodeState;
use muster_core::txn::Revision;
use muster_wire::operator::{NodeRow, Page};
use serde::Serialize;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::{Out, Terminal};

use super::rows::count;

/// How many names are worth a line.
const NAMES: usize = 10;

/// Check that a version runs, and that no node runs another
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A node that has proved to run nothing (it is new, it failed, or it is on its way) runs no other version, so it does \
not make the answer \"no\"; a note names it. The answer may be older than the last change by a moment. To demand \
every node, and an answer that is never older than the question, ask `muster verify-hosts VERSION`.

Exit codes:
  0   some node has proved to run the version, and none another
  1   nobody runs it, or somebody runs another
  2   cannot tell: no server, no such environment, or a server that has not read its store yet

Examples:
  muster check-single-version v2
  muster check-single-version v2 -v
  muster check-single-version v2 -o json")]
pub struct Args {
    /// The version, such as v2
    version: Version,
    /// Print what was found
    #[arg(short, long)]
    verbose: bool,
}

/// What was found.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Checked {
    version: Version,
    /// The answer.
    single: bool,
    /// How many nodes have proved to run the version.
    nodes: usize,
    /// Other versions, and how many nodes run each.
    unwanted: BTreeMap<Version, usize>,
    /// Nodes of the design that have proved to run nothing.
    without: Vec<NodeName>,
    revision: Revision,
}

pub(super) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let nodes = session.told(session.client().nodes(&session.env).await)?;
    let checked = check(&args.version, nodes);
    terminal.out.answer(&checked, |out| {
        if args.verbose {
            show(&checked, out);
        }
    });
    if !checked.without.is_empty() {
        let (names, all) = (short(&checked.without), count(checked.without.len(), "node"));
        terminal.notes.note(format_args!("nothing is proved yet by {all} of {}: {names}", session.env));
    }
    Ok(Exit::yes_if(checked.single))
}

fn check(version: &Version, nodes: Page<NodeRow>) -> Checked {
    let mut running: BTreeMap<Version, usize> = BTreeMap::new();
    let mut without = Vec::new();
    // A node that leaves is not asked what it runs.
    for row in nodes.items.into_iter().filter(|row| row.state != NodeState::Leaving) {
        match row.running {
            Some(runs) => *running.entry(runs).or_default() += 1,
            None => without.push(row.node),
        }
    }
    let wanted = running.remove(version).unwrap_or(0);
    Checked {
        version: version.clone(),
        single: wanted > 0 && running.is_empty(),
        nodes: wanted,
        unwanted: running,
        without,
        revision: nodes.revision,
    }
}

fn show(checked: &Checked, out: &mut Out) {
    let found = if checked.nodes > 0 { format!("yes, on {}", count(checked.nodes, "node")) } else { "no".into() };
    out.line(format_args!("Wanted version found: {found}"));
    let unwanted = checked.unwanted.iter();
    let unwanted: Vec<String> =
        unwanted.map(|(version, nodes)| format!("{version} on {}", count(*nodes, "node"))).collect();
    let unwanted = if unwanted.is_empty() { "none".to_owned() } else { unwanted.join(", ") };
    out.line(format_args!("Unwanted versions found: {unwanted}"));
}

fn short(names: &[NodeName]) -> String {
    let mut shown: Vec<String> = names.iter().take(NAMES).map(NodeName::to_string).collect();
    if names.len() > NAMES {
        shown.push(format!("… and {} more", names.len() - NAMES));
    }
    shown.join(", ")
}
