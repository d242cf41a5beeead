//! `muster node run` for several nodes: a limited number of them runs at a time, and the result is a summary.

use std::collections::BTreeMap;
use std::fmt;

use muster_core::names::{NodeName, RunId};
use muster_core::report::{Outcome, RunResult, Verdict};
use muster_wire::operator::RunDetail;
use muster_wire::runs::{RunRequestProgress, StartRunRequest};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::connect::{Session, is_retryable};
use crate::failure::{Exit, Failure};
use crate::output::{NONE, Table, Terminal, count};
use crate::process::Signals;
use crate::variables::author;

use super::run::{HOLD, POLL_PAUSE, newest, release_removed};

/// How the run of a node ended, the best result first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum NodeResult {
    Unchanged,
    Changed,
    /// The run waits for something.
    Pending,
    /// The agent is not connected. It runs when it reconnects.
    Disconnected,
    /// The server did not answer.
    Unknown,
    /// An operator interrupted the command before it was requested or had ended.
    Interrupted,
    Refused,
    Failed,
}

impl fmt::Display for NodeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unchanged => "unchanged",
            Self::Changed => "changed",
            Self::Pending => "pending",
            Self::Disconnected => "disconnected",
            Self::Unknown => "unknown",
            Self::Interrupted => "interrupted",
            Self::Refused => "refused",
            Self::Failed => "failed",
        })
    }
}

impl NodeResult {
    fn exit(self) -> Exit {
        match self {
            Self::Unchanged | Self::Changed => Exit::Yes,
            Self::Pending | Self::Disconnected | Self::Unknown | Self::Interrupted => Exit::CannotTell,
            Self::Refused | Self::Failed => Exit::No,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
struct NodeRun {
    node: NodeName,
    result: NodeResult,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Debug, Serialize)]
struct Summary {
    /// In the order of `muster node list`.
    nodes: Vec<NodeRun>,
    counts: BTreeMap<NodeResult, usize>,
}

/// Runs the nodes, at most `max` of them at a time.
pub(super) async fn run(
    session: &Session,
    nodes: Vec<NodeName>,
    request: &StartRunRequest,
    max: usize,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let signals = Signals::new();
    let mut signals =
        signals.map_err(|error| Failure::failed(anyhow::Error::new(error).context("cannot listen for signals")))?;
    let total = nodes.len();
    let mut waiting = nodes.iter();
    let mut running = JoinSet::new();
    let mut ended: BTreeMap<NodeName, NodeRun> = BTreeMap::new();
    loop {
        while running.len() < max
            && let Some(node) = waiting.next()
        {
            running.spawn(run_node(session.clone(), node.clone(), request.clone()));
        }
        let failed = ended.values().filter(|run| run.result.exit() == Exit::No).count();
        let counts = format!("{} of {} done, {failed} failed", ended.len(), count(total, "node"));
        terminal.notes.progress(format_args!("{counts}, {} running", running.len()));
        tokio::select! {
            joined = running.join_next() => match joined {
                None => break,
                Some(run) => {
                    let run = run.map_err(|error| Failure::failed(anyhow::Error::new(error).context("a task has failed")))?;
                    ended.insert(run.node.clone(), run);
                }
            },
            () = signals.recv() => {
                terminal.notes.note("interrupted: runs that were requested continue, and no others are requested");
                break;
            }
        }
    }
    terminal.notes.end_progress();
    running.shutdown().await;
    let interrupted =
        |node: &NodeName| NodeRun { node: node.clone(), result: NodeResult::Interrupted, run: None, reason: None };
    let runs = nodes.iter().map(|node| ended.remove(node).unwrap_or_else(|| interrupted(node))).collect();
    Ok(summary(runs, terminal))
}

fn summary(nodes: Vec<NodeRun>, terminal: &mut Terminal) -> Exit {
    let mut counts = BTreeMap::new();
    nodes.iter().for_each(|run| *counts.entry(run.result).or_insert(0) += 1);
    let summary = Summary { nodes, counts };
    terminal.out.answer(&summary, |out| {
        let mut table = Table::new(["NODE", "RESULT", "RUN", "REASON"]).color_column(1);
        for NodeRun { node, result, run, reason } in &summary.nodes {
            let run = run.as_ref().map_or_else(|| NONE.to_owned(), ToString::to_string);
            table.row([node.to_string(), result.to_string(), run, reason.clone().unwrap_or_default()]);
        }
        out.table(table);
        out.gap();
        let counts = summary.counts.iter().map(|(result, count)| format!("{count} {result}"));
        let nodes = if summary.nodes.len() == 1 { "node" } else { "nodes" };
        out.line(format_args!("{} {nodes}: {}", summary.nodes.len(), counts.collect::<Vec<_>>().join(", ")));
    });
    let exits = || summary.counts.keys().map(|result| result.exit());
    if exits().any(|exit| exit == Exit::No) {
        Exit::No
    } else if exits().any(|exit| exit == Exit::CannotTell) {
        Exit::CannotTell
    } else {
        Exit::Yes
    }
}

async fn run_node(mut session: Session, node: NodeName, request: StartRunRequest) -> NodeRun {
    let ended = |result, reason: Option<String>| NodeRun { node: node.clone(), result, run: None, reason };
    let requested = session.client().request_run(&session.env, node.as_str(), &author(), &request).await;
    let accepted = match requested {
        Ok(accepted) => accepted,
        Err(error) => {
            let failure = session.server.failure(error);
            let result = if failure.exit == Exit::CannotTell { NodeResult::Unknown } else { NodeResult::Refused };
            return ended(result, Some(failure.error.to_string()));
        }
    };
    if accepted.silent_since.is_some() {
        return ended(NodeResult::Disconnected, Some("the run starts when the agent reconnects".to_owned()));
    }
    loop {
        let status = match session.client().run_request(&session.env, &node, &accepted.id, HOLD).await {
            Ok(status) => status,
            Err(error) if is_retryable(&error) => {
                sleep(POLL_PAUSE).await;
                match session.rediscover() {
                    Ok(()) => continue,
                    Err(failure) => return ended(NodeResult::Unknown, Some(failure.error.to_string())),
                }
            }
            Err(error) => return ended(NodeResult::Unknown, Some(session.server.failure(error).error.to_string())),
        };
        match status.progress {
            RunRequestProgress::Waiting { silent_since: None } => {}
            RunRequestProgress::Waiting { silent_since: Some(_) } => {
                return ended(NodeResult::Disconnected, Some("the run starts when the agent reconnects".to_owned()));
            }
            RunRequestProgress::ReleaseRemoved { version } => {
                return ended(NodeResult::Failed, Some(release_removed(&version)));
            }
            RunRequestProgress::Running { .. } => sleep(POLL_PAUSE).await,
            RunRequestProgress::Done { run } => {
                return match session.client().run(&session.env, &node, &run).await {
                    Ok(detail) => result(node, &detail),
                    Err(error) => ended(NodeResult::Unknown, Some(session.server.failure(error).error.to_string())),
                };
            }
        }
    }
}

/// Result of a run that has ended.
fn result(node: NodeName, detail: &RunDetail) -> NodeRun {
    let applier = |outcome| match outcome {
        Outcome::Configured(result) | Outcome::Previewed(result) => Some(result),
        Outcome::Validated(_) => None,
    };
    let result = newest(detail).map_or(NodeResult::Unknown, |last| match last.outcome {
        Outcome::Validated(Verdict::Failed) => NodeResult::Failed,
        // An earlier report of the run has the result of the applier.
        Outcome::Validated(Verdict::Passed) | Outcome::Configured(_) | Outcome::Previewed(_) => {
            match applier(last.outcome).or_else(|| detail.reports.iter().find_map(|report| applier(report.outcome))) {
                Some(RunResult::Changed) => NodeResult::Changed,
                Some(RunResult::Unchanged) | None => NodeResult::Unchanged,
                Some(RunResult::Failed) => NodeResult::Failed,
                Some(RunResult::Pending) => NodeResult::Pending,
            }
        }
    });
    let reason = newest(detail).and_then(|last| last.reason.as_ref()).map(ToString::to_string);
    NodeRun { node, result, run: Some(detail.run.clone()), reason }
}
