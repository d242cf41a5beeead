//! Commands that show versions: `current-version`, `running-versions`, `hosts-at-version`, `check-single-version`.

use std::collections::BTreeMap;

use muster_core::names::{NodeName, Version};
use muster_core::node::status::NodeState;
use muster_core::txn::Revision;
use muster_wire::client::ClientError;
use muster_wire::operator::{NodeRow, Page, UncountedNode};
use muster_wire::problem::ProblemCode;
use serde::Serialize;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Notes, Out, Table, Terminal, count, not_counted_text};

/// Names of nodes that fit one line.
const NAMES: usize = 10;

/// Print the version that the environment should run
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
`muster running-versions` shows the versions that nodes actually run.

Exit codes:
  0   success
  1   the environment has no version yet, or does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster current-version
  muster verify-hosts \"$(muster current-version)\" web1 web2")]
pub struct CurrentVersionArgs {}

/// List the versions that nodes run
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A node runs a version when its agent is connected, and its validation has passed at that version in its present \
incarnation. A note lists the nodes that validated a version before and do not count, with the reason. With --recorded the \
last validation of each node counts, however old it is.

Exit codes:
  0   success, also with an empty list
  1   the environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster running-versions
  muster running-versions -o json | jq -r '.items[].version'")]
pub struct RunningVersionsArgs {
    #[command(flatten)]
    recorded: Recorded,
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct Recorded {
    /// Count the version that each node validated last, although it may be unreachable or restarted since
    #[arg(long)]
    recorded: bool,
}

/// List the nodes that run a version, one per line
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Nodes count as for `muster running-versions`: with --recorded the last validation of each node counts.

Exit codes:
  0   success, also with an empty list
  1   the environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster hosts-at-version v1
  muster hosts-at-version v1 | muster verify-hosts v2 --wait")]
pub struct HostsAtVersionArgs {
    /// Version, such as v2
    version: Version,
    #[command(flatten)]
    recorded: Recorded,
}

/// Check that nodes run a version, and that no node runs another one
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A node that has not validated any version (it is new, it failed, or it is being updated) does not make the answer \
\"no\"; a note lists such nodes. A node whose last validation does not count (it is unreachable or lost, its machine was \
restarted, or its agent has a new incarnation) makes the answer \"no\", since it may run anything; a note lists such nodes \
with the reason. With --recorded the last validation of each node counts, however old it is. The answer may lag behind the last change by a moment. `muster verify-hosts VERSION` \
requires every node to run the version, and its answer is never stale.

Exit codes:
  0   at least one node runs the version, and no node runs another one
  1   no node runs the version, a node runs another one, or it is not proved what a node runs
  2   unknown: no server, no such environment, or the server has not loaded its store yet

Examples:
  muster check-single-version v2
  muster check-single-version v2 -v
  muster check-single-version v2 -o json")]
pub struct CheckSingleVersionArgs {
    /// Version, such as v2
    version: Version,
    /// Print the versions that were found
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    recorded: Recorded,
}

pub(super) async fn current(
    _: &CurrentVersionArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let current = session.map_err(session.client().current_version(&session.env).await)?;
    terminal.out.answer(&current, |out| {
        if let Some(version) = &current.version {
            out.line(version);
        }
    });
    if current.version.is_none() {
        let env = &session.env;
        terminal.notes.note(format_args!("{env} has no version yet; set one with `muster trigger-update VERSION`"));
    }
    Ok(Exit::yes_if(current.version.is_some()))
}

pub(super) async fn running(
    RunningVersionsArgs { recorded: Recorded { recorded } }: &RunningVersionsArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.map_err(session.client().running_versions(&session.env, *recorded).await)?;
    terminal.out.answer(&page, |out| {
        let mut table = Table::new(["VERSION", "NODES"]);
        page.items.iter().for_each(|row| table.row([row.version.to_string(), row.nodes.to_string()]));
        if !page.items.is_empty() {
            out.table(table);
        }
    });
    if !page.not_counted.is_empty() {
        note_not_counted(&page.not_counted, terminal);
    } else if page.items.is_empty() {
        terminal.notes.note(format_args!("no node of {} has validated a version yet", session.env));
    }
    Ok(Exit::Yes)
}

pub(super) async fn hosts_at(
    args: &HostsAtVersionArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let (env, version, recorded) = (&session.env, &args.version, args.recorded.recorded);
    let page = session.map_err(session.client().hosts_at_version(env, version, recorded).await)?;
    let mut not_counted = match recorded {
        true => Vec::new(),
        false => session.map_err(session.client().running_versions(env, false).await)?.not_counted,
    };
    not_counted.retain(|node| node.version == *version);
    terminal.out.answer(&page, |out| page.items.iter().for_each(|host| out.line(host)));
    if !not_counted.is_empty() {
        note_not_counted(&not_counted, terminal);
    } else if page.items.is_empty() && !warn_of_unknown_release(&session, version, &mut terminal.notes).await {
        terminal.notes.note(format_args!("no node of {} has validated {}", session.env, args.version));
    }
    Ok(Exit::Yes)
}

/// Result of `check-single-version`.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct VersionCheck {
    version: Version,
    /// The answer.
    single: bool,
    /// Number of nodes that have validated the version.
    nodes: usize,
    /// Other versions, and how many nodes run each.
    other_versions: BTreeMap<Version, usize>,
    /// Nodes that have not validated any version.
    without: Vec<NodeName>,
    /// Nodes whose last validation does not count, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_counted: Vec<UncountedNode>,
    revision: Revision,
}

pub(super) async fn check_single(
    args: &CheckSingleVersionArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let nodes = session.map_err(session.client().nodes(&session.env).await)?;
    let check = evaluate(&args.version, nodes, args.recorded.recorded);
    terminal.out.answer(&check, |out| {
        if args.verbose {
            show(&check, out);
        }
    });
    if check.nodes == 0 {
        warn_of_unknown_release(&session, &args.version, &mut terminal.notes).await;
    }
    if !check.without.is_empty() {
        let (names, nodes) = (first_names(&check.without), count(check.without.len(), "node"));
        terminal.notes.note(format_args!("{nodes} of {} without a validated version: {names}", session.env));
    }
    if !check.not_counted.is_empty() {
        note_not_counted(&check.not_counted, terminal);
    }
    Ok(Exit::yes_if(check.single))
}

fn evaluate(version: &Version, nodes: Page<NodeRow>, recorded: bool) -> VersionCheck {
    let mut running: BTreeMap<Version, usize> = BTreeMap::new();
    let (mut without, mut not_counted) = (Vec::new(), Vec::new());
    // Nodes that leave the environment do not count.
    for row in nodes.items.into_iter().filter(|row| row.state != NodeState::Leaving) {
        match (row.running, row.not_counted.filter(|_| !recorded)) {
            (Some(version), Some(reason)) => not_counted.push(UncountedNode { node: row.node, version, reason }),
            (Some(runs), None) => *running.entry(runs).or_default() += 1,
            (None, _) => without.push(row.node),
        }
    }
    let wanted = running.remove(version).unwrap_or(0);
    VersionCheck {
        version: version.clone(),
        single: wanted > 0 && running.is_empty() && not_counted.is_empty(),
        nodes: wanted,
        other_versions: running,
        without,
        not_counted,
        revision: nodes.revision,
    }
}

fn show(check: &VersionCheck, out: &mut Out) {
    let found = if check.nodes > 0 { format!("yes, on {}", count(check.nodes, "node")) } else { "no".into() };
    out.line(format_args!("Wanted version found: {found}"));
    let unwanted: Vec<String> =
        check.other_versions.iter().map(|(version, nodes)| format!("{version} on {}", count(*nodes, "node"))).collect();
    let unwanted = if unwanted.is_empty() { "none".to_owned() } else { unwanted.join(", ") };
    out.line(format_args!("Unwanted versions found: {unwanted}"));
}

/// Warns if there is no such release, which no node can ever run, with the names of similar ones. Returns whether that is so.
pub(super) async fn warn_of_unknown_release(session: &Session, version: &Version, notes: &mut Notes) -> bool {
    let found = session.client().release(&session.env, version).await;
    let error = found.err();
    let refused = error.as_ref().and_then(ClientError::problem);
    let Some(problem) = refused.filter(|problem| problem.code == ProblemCode::UnknownVersion) else { return false };
    let hint = problem.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
    notes.warning(format_args!("there is no release {version}: no node can run it{hint}"));
    true
}

/// "2 nodes do not count: web1 (v2, unreachable for 12s), web2 (v2, its machine was restarted since)"
fn note_not_counted(nodes: &[UncountedNode], terminal: &mut Terminal) {
    let now = terminal.now;
    let named =
        |node: &UncountedNode| format!("{} ({}, {})", node.node, node.version, not_counted_text(&node.reason, now));
    let mut shown: Vec<String> = nodes.iter().take(NAMES).map(named).collect();
    if nodes.len() > NAMES {
        shown.push(format!("… and {} more", nodes.len() - NAMES));
    }
    let (count, verb) = (count(nodes.len(), "node"), if nodes.len() == 1 { "does" } else { "do" });
    terminal.notes.note(format_args!("{count} {verb} not count: {}", shown.join(", ")));
}

fn first_names(names: &[NodeName]) -> String {
    let mut shown: Vec<String> = names.iter().take(NAMES).map(NodeName::to_string).collect();
    if names.len() > NAMES {
        shown.push(format!("… and {} more", names.len() - NAMES));
    }
    shown.join(", ")
}
