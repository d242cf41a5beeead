//! `muster env apply`: applies a design to the nodes of an environment, and waits until they have converged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use muster_core::design::plan::{DesignPlan, NodeAction, Totals};
use muster_core::names::{EnvName, NodeName};
use muster_core::node::status::{NodeState, Reason};
use muster_core::txn::Revision;
use muster_wire::design::{ApplyDesign, ApplyDesignResponse};
use muster_wire::operator::NodeRow;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::args::{Globals, OutputFormat};
use crate::commands::fleet_progress::{FleetNode, FleetProgress, fleet_progress};
use crate::connect::{ServerConnection, is_retryable};
use crate::failure::{Exit, Failure};
use crate::output::{Notes, Terminal, count, node_table};
use crate::variables::author;

use super::design_input::DesignInputArgs;
use super::plan::{read_plan, show_plan};

/// Pause between two requests. A node takes seconds, and the rows of thousands of nodes are a megabyte.
const POLL_PAUSE: Duration = Duration::from_millis(500);

/// Time between two lines of progress where standard error is not a terminal.
const PROGRESS_PAUSE: Duration = Duration::from_secs(10);
/// Names of nodes in a question.
const SHOWN_NODES: usize = 5;

/// Apply a design to an environment: create, change and remove nodes
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Prints the plan and executes exactly that plan; if the design or the nodes change meanwhile, nothing is done. With --plan \
the plan that `muster env plan --out` has saved is executed; the directories must be unchanged, and --cardinality is taken \
from the plan.

The directories become a new revision of the design. Each directory replaces its previous content; documents that were \
written through the API are kept and take precedence. An environment that does not exist is created.

A design that removes all nodes of an environment is refused without --remove-all: most likely the directory is the \
wrong one. `muster env destroy` removes an environment.

A plan that removes nodes asks for confirmation, unless it was saved before; without a terminal --yes is required.

Nodes to be removed are drained before they are stopped. Without --no-wait the command waits until new and changed nodes are \
validated and removed nodes are gone, or until no node makes progress. It does not wait for nodes of an environment \
without a version. Not waiting, or Ctrl-C, does not stop the change.

Exit codes:
  0   done, or there were no changes
  1   refused: the design has errors, or the plan is out of date; or some nodes have not converged before the timeout, and are
      listed
  2   unknown: retry, which is safe
  64  the directory does not exist

Examples:
  muster env apply prod site
  muster env apply prod site --message 'one more web server' --cardinality web=3
  muster env plan prod site --out plan.json && muster env apply prod site --plan plan.json
  muster env apply prod            # apply what was changed through the API")]
pub struct Args {
    /// Name of the environment
    #[arg(value_name = "ENV")]
    name: EnvName,
    #[command(flatten)]
    input: DesignInputArgs,
    /// Execute this saved plan, or nothing if it is out of date
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Reason for the change, kept in the history of the design; the author is MUSTER_AUTHOR, or your user name
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    message: String,
    /// Allow a design that removes all nodes of the environment
    #[arg(long)]
    remove_all: bool,
    /// Remove nodes without asking
    #[arg(short, long)]
    yes: bool,
    /// Print the plan, and change nothing
    #[arg(long, conflicts_with_all = ["wait", "no_wait"])]
    dry_run: bool,
    /// Wait until the nodes have converged; this is the default
    #[arg(long, conflicts_with = "no_wait")]
    wait: bool,
    /// Do not wait until the nodes have converged
    #[arg(long)]
    no_wait: bool,
    /// Maximum time to wait, such as 90s or 1h30m
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = crate::args::timeout_arg)]
    timeout: SignedDuration,
}

/// The applied plan, and the state of its nodes after waiting.
#[derive(Debug, Serialize)]
struct ApplyOutput {
    #[serde(flatten)]
    applied: ApplyDesignResponse,
    #[serde(rename = "arrival", skip_serializing_if = "Option::is_none")]
    convergence: Option<Convergence>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut server = ServerConnection::find(globals)?;
    let env = &args.name;
    let saved = args.plan.as_deref().map(read_plan).transpose()?;
    let input = args.input.read(&server, env, saved.as_ref(), &mut terminal.notes).await?;
    let is_saved = saved.is_some();
    let plan = match saved {
        Some(plan) => plan,
        None => {
            let planned = server.client.plan_design(env, &input.design).await;
            let mut planned = planned.map_err(|error| input.failure(&server, error))?;
            input.note_findings(&mut planned.findings, &mut terminal.notes);
            planned.plan
        }
    };
    if args.dry_run {
        terminal.out.answer(&plan, |out| show_plan(&plan, out));
        return Ok(Exit::Yes);
    }
    // Before the request, to see what is being executed.
    if globals.output == OutputFormat::Table {
        show_plan(&plan, &mut terminal.out);
        terminal.out.flush();
    }
    // A saved plan was reviewed before. The server refuses to remove all nodes without --remove-all.
    let Totals { create, change, remove, keep } = plan.totals;
    if remove > 0 && create + change + keep > 0 && !(args.yes || is_saved) {
        let removed = removed_nodes(&plan);
        terminal.notes.confirm(format_args!("{removed} will be drained and removed from {env}. Continue?"), "--yes")?;
    }
    let apply = ApplyDesign {
        design: input.design.clone(),
        message: args.message.clone(),
        author: Some(author()),
        plan: Some(plan),
        remove_all: args.remove_all,
    };
    let mut applied = server.client.apply_design(env, &apply).await.map_err(|error| input.failure(&server, error))?;
    // A plan that was computed above has printed its findings already.
    if is_saved {
        input.note_findings(&mut applied.findings, &mut terminal.notes);
    }
    let convergence = if args.no_wait || !applied.changed {
        None
    } else {
        let timeout = Duration::try_from(args.timeout).unwrap_or_default();
        let (plan, revision) = (&applied.plan, applied.revision);
        Some(wait_until_converged(&mut server, env, plan, revision, timeout, &mut terminal.notes).await?)
    };
    let output = ApplyOutput { applied, convergence };
    show_result(env, &output, terminal);
    Ok(match &output.convergence {
        Some(convergence) => {
            note_unconverged(convergence, &mut terminal.notes);
            Exit::yes_if(convergence.converged || convergence.no_version)
        }
        None => Exit::Yes,
    })
}

/// "web3", or "3 nodes (web3, web4, web5)"
fn removed_nodes(plan: &DesignPlan) -> String {
    let removed = plan.nodes.iter().filter(|node| node.action == NodeAction::Remove).map(|node| node.node.as_str());
    let names: Vec<&str> = removed.collect();
    match names[..] {
        [only] => only.to_owned(),
        _ => {
            let shown = names.iter().take(SHOWN_NODES).copied().collect::<Vec<_>>().join(", ");
            let more = if names.len() > SHOWN_NODES { ", …" } else { "" };
            format!("{} ({shown}{more})", count(names.len(), "node"))
        }
    }
}

fn show_result(env: &EnvName, output: &ApplyOutput, terminal: &mut Terminal) {
    let now = terminal.now;
    terminal.out.answer(output, |out| {
        let ApplyDesignResponse { design, changed, revision, .. } = &output.applied;
        if !changed {
            return;
        }
        out.gap();
        out.line(format_args!("{env} follows design {design} (revision {revision})"));
        if let Some(Convergence { missing, leaving, .. }) = &output.convergence {
            let open: Vec<NodeRow> = missing.iter().chain(leaving).cloned().collect();
            if !open.is_empty() {
                out.gap();
                out.table(node_table(&open, now));
            }
        }
    });
}

fn note_unconverged(convergence: &Convergence, notes: &mut Notes) {
    if convergence.no_version {
        notes.note(
            "the environment has no version yet, and its nodes have nothing to run: `muster release push DIR`, then `muster \
             trigger-update VERSION`",
        );
    } else if convergence.stuck {
        notes.note("these nodes are stuck; `muster node show NODE` shows the reason");
    } else if !convergence.converged {
        notes.note("not all nodes have converged yet; the change continues, and `muster status` shows its progress");
    }
}

/// State of the nodes of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Convergence {
    /// All nodes have converged.
    converged: bool,
    /// Nodes that are not validated yet.
    missing: Vec<NodeRow>,
    /// Nodes that are not removed yet.
    leaving: Vec<NodeRow>,
    /// New nodes that the server does not list yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unseen: Vec<NodeName>,
    /// The environment has no version yet: no node can be validated.
    no_version: bool,
    /// No node makes progress; an operator has to intervene.
    stuck: bool,
}

/// Polls until all nodes of the plan have converged, no node makes progress, or the timeout expires. Waits for a server
/// that becomes unreachable.
async fn wait_until_converged(
    server: &mut ServerConnection,
    env: &EnvName,
    plan: &DesignPlan,
    revision: Revision,
    timeout: Duration,
    notes: &mut Notes,
) -> Result<Convergence, Failure> {
    let started = Instant::now();
    let deadline = started + timeout;
    let all = plan.nodes.iter().filter(|node| is_executed(node.action)).count();
    let (mut noted, mut unreachable) = (BTreeSet::new(), false);
    let mut pipe = PipeProgress::default();
    loop {
        match server.client.clone().at_least(revision).nodes(env).await {
            Ok(page) => {
                if std::mem::take(&mut unreachable) {
                    notes.note("the server is reachable again");
                }
                let convergence = convergence(plan, page.items);
                note_converged(plan, &convergence, &mut noted, notes);
                if convergence.converged || convergence.no_version || convergence.stuck || Instant::now() >= deadline {
                    notes.end_progress();
                    return Ok(convergence);
                }
                let converged = all - convergence.missing.len() - convergence.leaving.len() - convergence.unseen.len();
                let seconds = started.elapsed().as_secs();
                let progress =
                    format!("{converged} of {} converged ({seconds}s){}", count(all, "node"), first_open(&convergence));
                if notes.shows_progress() {
                    notes.progress(progress);
                } else if pipe.is_due(Instant::now()) {
                    notes.note(progress);
                }
            }
            Err(error) if is_retryable(&error) && Instant::now() < deadline => {
                if !std::mem::replace(&mut unreachable, true) {
                    notes.note(format_args!("{error}; waiting for the server"));
                }
                // Without an announcement the old address is retried.
                let _ = server.rediscover();
            }
            Err(error) => return Err(server.failure(error)),
        }
        sleep_until((Instant::now() + POLL_PAUSE).min(deadline)).await;
    }
}

/// Limits the lines of progress where standard error is not a terminal. The first one is printed at once.
#[derive(Debug, Default)]
struct PipeProgress {
    printed: Option<Instant>,
}

impl PipeProgress {
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.printed.is_none_or(|printed| now.duration_since(printed) >= PROGRESS_PAUSE);
        if is_due {
            self.printed = Some(now);
        }
        is_due
    }
}

fn convergence(plan: &DesignPlan, rows: Vec<NodeRow>) -> Convergence {
    // Of all nodes: a new node may wait for an existing one that makes progress.
    let fleet: Vec<FleetNode> = rows.iter().map(|row| FleetNode { row: row.clone(), ran: true }).collect();
    let progress = fleet_progress(&fleet);
    let mut rows: BTreeMap<NodeName, NodeRow> = rows.into_iter().map(|row| (row.node.clone(), row)).collect();
    let mut convergence = Convergence::default();
    for node in &plan.nodes {
        match (node.action, rows.remove(&node.node)) {
            (NodeAction::Keep | NodeAction::Retired, _) | (NodeAction::Remove, None) => {}
            (NodeAction::Remove, Some(row)) => convergence.leaving.push(row),
            (NodeAction::Create | NodeAction::Change, Some(row)) if row.state == NodeState::Validated => {}
            (NodeAction::Create | NodeAction::Change, Some(row)) => convergence.missing.push(row),
            (NodeAction::Create | NodeAction::Change, None) => convergence.unseen.push(node.node.clone()),
        }
    }
    // A node without a machine that starts, or without an agent, never gets as far as the reason.
    let has_no_version = |row: &NodeRow| {
        matches!(row.reason, Some(Reason::NoVersion)) || (row.desired.is_none() && row.state == NodeState::Silent)
    };
    let only_missing =
        convergence.unseen.is_empty() && convergence.leaving.is_empty() && !convergence.missing.is_empty();
    convergence.converged =
        convergence.unseen.is_empty() && convergence.missing.is_empty() && convergence.leaving.is_empty();
    convergence.no_version = only_missing && convergence.missing.iter().all(has_no_version);
    convergence.stuck = only_missing && progress == FleetProgress::Stuck;
    convergence
}

/// Returns whether an apply changes a node with this action.
fn is_executed(action: NodeAction) -> bool {
    !matches!(action, NodeAction::Keep | NodeAction::Retired)
}

/// Prints each node once when it has converged.
fn note_converged(plan: &DesignPlan, convergence: &Convergence, noted: &mut BTreeSet<NodeName>, notes: &mut Notes) {
    let open: BTreeSet<&NodeName> = {
        let rows = convergence.missing.iter().chain(&convergence.leaving).map(|row| &row.node);
        rows.chain(&convergence.unseen).collect()
    };
    for node in plan.nodes.iter().filter(|node| is_executed(node.action) && !open.contains(&node.node)) {
        if noted.insert(node.node.clone()) {
            match node.action {
                NodeAction::Remove => notes.note(format_args!("{} is gone", node.node)),
                NodeAction::Create | NodeAction::Change => notes.note(format_args!("{} is validated", node.node)),
                NodeAction::Keep | NodeAction::Retired => {}
            }
        }
    }
}

/// The first node that has not converged.
fn first_open(convergence: &Convergence) -> String {
    let first = convergence.missing.first().or(convergence.leaving.first());
    first.map(|row| format!("; {} {}", row.node, row.state.label())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use muster_core::design::plan::{DocumentTotals, NodePlan, PlanBase, Totals};
    use muster_core::names::{Role, Version};

    use super::*;
    use crate::output::testing::node_row;

    fn plan(nodes: &[(&str, NodeAction)]) -> DesignPlan {
        let node = |(name, action): &(&str, NodeAction)| NodePlan {
            node: NodeName::new(*name).unwrap(),
            role: Role::new("web").unwrap(),
            action: *action,
            changes: Vec::new(),
        };
        DesignPlan {
            env: EnvName::new("lab").unwrap(),
            base: PlanBase::default(),
            design: String::new(),
            cardinality: Default::default(),
            nodes: nodes.iter().map(node).collect(),
            roles: Vec::new(),
            totals: Totals::default(),
            documents: DocumentTotals::default(),
        }
    }

    #[test]
    fn progress_in_a_pipe_is_a_line_every_ten_seconds() {
        let start = Instant::now();
        let mut pipe = PipeProgress::default();
        let due = [0, 1, 9, 10, 19, 20].map(|seconds| pipe.is_due(start + Duration::from_secs(seconds)));
        assert_eq!(due, [true, false, false, true, false, true]);
    }

    #[test]
    fn plan_has_converged_when_nodes_are_validated_or_gone() {
        use NodeAction::{Change, Create, Keep, Remove};
        let failed = || node_row("web1", NodeState::Failed, Some(Reason::NotValidated));
        let validated = |name: &str| node_row(name, NodeState::Validated, None);
        let no_version = |name: &str| node_row(name, NodeState::Outdated, Some(Reason::NoVersion));
        let silent = |name: &str| node_row(name, NodeState::Silent, Some(Reason::Silent));
        let with_version = NodeRow { desired: Some(Version::new("v1").unwrap()), ..silent("web1") };
        let table = [
            ("no version, no agent", plan(&[("web1", Create)]), vec![silent("web1")], false, true),
            ("a version, no agent", plan(&[("web1", Create)]), vec![with_version], false, false),
            ("kept nodes do not count", plan(&[("web1", Keep)]), vec![failed()], true, false),
            ("new and validated", plan(&[("web2", Create)]), vec![failed(), validated("web2")], true, false),
            ("new and not seen yet", plan(&[("web2", Create)]), vec![], false, false),
            ("changed and failed", plan(&[("web1", Change)]), vec![failed()], false, false),
            ("leaving", plan(&[("web1", Remove)]), vec![node_row("web1", NodeState::Leaving, None)], false, false),
            ("gone", plan(&[("web1", Remove)]), vec![], true, false),
            ("no version", plan(&[("web1", Create), ("web2", Keep)]), vec![no_version("web1")], false, true),
            (
                "no version, one unseen",
                plan(&[("web1", Create), ("web2", Create)]),
                vec![no_version("web1")],
                false,
                false,
            ),
        ];
        for (case, plan, rows, converged, no_version) in table {
            let convergence = convergence(&plan, rows);
            assert_eq!((convergence.converged, convergence.no_version), (converged, no_version), "{case}");
        }

        let failed_run = |attempt| Some(Reason::Failed { reason: None, errors: Vec::new(), attempt, retry: None });
        let one = plan(&[("web1", Create), ("web2", Keep)]);
        assert!(!convergence(&one, vec![node_row("web1", NodeState::Failed, failed_run(1))]).stuck, "it retries");
        assert!(convergence(&one, vec![node_row("web1", NodeState::Failed, failed_run(3))]).stuck);
        let other_makes_progress =
            vec![node_row("web1", NodeState::Failed, failed_run(3)), node_row("web2", NodeState::Applying, None)];
        assert!(!convergence(&one, other_makes_progress).stuck);
    }
}
