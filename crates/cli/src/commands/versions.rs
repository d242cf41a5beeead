//! Commands that show versions: `current-version`, `running-versions`, `hosts-at-version`, `check-single-version`.

use std::collections::BTreeMap;

use muster_core::names::{NodeName, Version};
use muster_core::node::status::NodeState;
use muster_core::txn::Revision;
use muster_wire::operator::{NodeRow, Page};
use serde::Serialize;

use crate::args::Globals;
use crate::connect::Session;
use crate::failure::{Exit, Failure};
use crate::output::{Out, Table, Terminal, count};

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

/// List the versions that nodes have validated
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A node runs a version when its validation has passed at that version.

Exit codes:
  0   success, also with an empty list
  1   the environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster running-versions
  muster running-versions -o json | jq -r '.items[].version'")]
pub struct RunningVersionsArgs {}

/// List the nodes that have validated a version, one per line
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
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
}

/// Check that nodes run a version, and that no node runs another one
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
A node that has not validated any version (it is new, it failed, or it is being updated) does not make the answer \
\"no\"; a note lists such nodes. The answer may lag behind the last change by a moment. `muster verify-hosts VERSION` \
requires every node to run the version, and its answer is never stale.

Exit codes:
  0   at least one node has validated the version, and no node has validated another one
  1   no node has validated the version, or a node has validated another one
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
    _: &RunningVersionsArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let page = session.map_err(session.client().running_versions(&session.env).await)?;
    terminal.out.answer(&page, |out| {
        let mut table = Table::new(["VERSION", "NODES"]);
        page.items.iter().for_each(|row| table.row([row.version.to_string(), row.nodes.to_string()]));
        if !page.items.is_empty() {
            out.table(table);
        }
    });
    if page.items.is_empty() {
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
    let page = session.map_err(session.client().hosts_at_version(&session.env, &args.version).await)?;
    terminal.out.answer(&page, |out| page.items.iter().for_each(|host| out.line(host)));
    if page.items.is_empty() {
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
    unwanted: BTreeMap<Version, usize>,
    /// Nodes that have not validated any version.
    without: Vec<NodeName>,
    revision: Revision,
}

pub(super) async fn check_single(
    args: &CheckSingleVersionArgs,
    globals: &Globals,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let session = Session::open(globals).await?;
    let nodes = session.map_err(session.client().nodes(&session.env).await)?;
    let check = evaluate(&args.version, nodes);
    terminal.out.answer(&check, |out| {
        if args.verbose {
            show(&check, out);
        }
    });
    if !check.without.is_empty() {
        let (names, nodes) = (first_names(&check.without), count(check.without.len(), "node"));
        terminal.notes.note(format_args!("{nodes} of {} without a validated version: {names}", session.env));
    }
    Ok(Exit::yes_if(check.single))
}

fn evaluate(version: &Version, nodes: Page<NodeRow>) -> VersionCheck {
    let mut running: BTreeMap<Version, usize> = BTreeMap::new();
    let mut without = Vec::new();
    // Nodes that leave the environment do not count.
    for row in nodes.items.into_iter().filter(|row| row.state != NodeState::Leaving) {
        match row.running {
            Some(runs) => *running.entry(runs).or_default() += 1,
            None => without.push(row.node),
        }
    }
    let wanted = running.remove(version).unwrap_or(0);
    VersionCheck {
        version: version.clone(),
        single: wanted > 0 && running.is_empty(),
        nodes: wanted,
        unwanted: running,
        without,
        revision: nodes.revision,
    }
}

fn show(check: &VersionCheck, out: &mut Out) {
    let found = if check.nodes > 0 { format!("yes, on {}", count(check.nodes, "node")) } else { "no".into() };
    out.line(format_args!("Wanted version found: {found}"));
    let unwanted: Vec<String> =
        check.unwanted.iter().map(|(version, nodes)| format!("{version} on {}", count(*nodes, "node"))).collect();
    let unwanted = if unwanted.is_empty() { "none".to_owned() } else { unwanted.join(", ") };
    out.line(format_args!("Unwanted versions found: {unwanted}"));
}

fn first_names(names: &[NodeName]) -> String {
    let mut shown: Vec<String> = names.iter().take(NAMES).map(NodeName::to_string).collect();
    if names.len() > NAMES {
        shown.push(format!("… and {} more", names.len() - NAMES));
    }
    shown.join(", ")
}
