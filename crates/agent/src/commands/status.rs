//! `muster-agent status`: shows the validated and the desired version, the last run, and whether a server answers.

use std::process::ExitCode;

use serde::Serialize;

use muster_core::names::{EnvName, NodeName, RunId, Version};
use muster_core::node::pause::NodePause;
use muster_wire::output::ObjectOutput;

use crate::commands::{LocalState, SUCCESS, print_line, request_desired};
use crate::config::ConfigFile;
use crate::release::release_history::ReleaseHistory;
use crate::state::directory::Layout;
use crate::state::ledger::{Ledger, LedgerRunEnd};

#[derive(Debug, Serialize)]
struct StatusOutput {
    env: EnvName,
    node: NodeName,
    /// An agent is running.
    agent: bool,
    /// The version that was validated last.
    version: Option<Version>,
    /// The desired version: from the server or, without one, the last known.
    desired: Option<Version>,
    /// The version that the node has rolled back and does not try again.
    went_back_from: Option<Version>,
    running: Option<RunId>,
    last: Option<LastRunStatus>,
    pause: Option<NodePause>,
    /// Number of unsent reports.
    reports_waiting: usize,
    /// Names of the files in the outbox that the agent did not write, and that it moves to `outbox/foreign`.
    foreign_files: Vec<String>,
    /// Releases with a lower serial are refused without `allow_older`.
    highest_serial: Option<u64>,
    server: ServerStatus,
}

#[derive(Debug, Serialize)]
struct LastRunStatus {
    run: RunId,
    end: LedgerRunEnd,
    /// Failed runs in a row.
    attempt: u32,
}

#[derive(Debug, Serialize)]
struct ServerStatus {
    answers: bool,
    why_not: Option<String>,
}

pub async fn run(config: &ConfigFile, json: bool) -> anyhow::Result<ExitCode> {
    let known = LocalState::read(config)?;
    let (answer, why_not) = match request_desired(config).await {
        Ok(answer) => (Some(answer), None),
        Err(why) => (None, Some(why)),
    };
    let ledger = known.ledger.as_ref();
    let history = std::fs::read(Layout::at(&config.state_dir).release_history()).ok();
    let history: Option<ReleaseHistory> = history.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let last_known = ledger.and_then(|ledger| Some(ledger.desired.as_ref()?.version.clone()));
    let status = StatusOutput {
        env: config.env.clone(),
        node: config.node.clone(),
        agent: known.agent_running,
        version: known.local().map(|local| local.version.clone()),
        desired: answer.as_ref().map_or(last_known, |answer| Some(answer.desired.as_ref()?.version.clone())),
        went_back_from: ledger.and_then(rolled_back_version),
        running: ledger.and_then(|ledger| Some(ledger.running.as_ref()?.run.clone())),
        last: ledger.and_then(|ledger| ledger.last.as_ref()).map(|last| LastRunStatus {
            run: last.run.clone(),
            end: last.end,
            attempt: last.attempt,
        }),
        pause: answer
            .as_ref()
            .map_or_else(|| ledger.and_then(|ledger| ledger.pause.clone()), |answer| answer.pause.clone()),
        reports_waiting: known.unsent_reports,
        foreign_files: known.foreign_files.clone(),
        highest_serial: history.and_then(|history| history.highest),
        server: ServerStatus { answers: answer.is_some(), why_not },
    };
    if json {
        print_line(format_args!("{}", serde_json::to_string_pretty(&ObjectOutput::new(&status))?));
    } else {
        print(&status);
    }
    Ok(ExitCode::from(SUCCESS))
}

fn rolled_back_version(ledger: &Ledger) -> Option<Version> {
    let rollback = ledger.current_rollback()?;
    ledger.rolled_back_generation().map(|_| rollback.version.clone())
}

fn print(status: &StatusOutput) {
    let or_none = |version: &Option<Version>| version.as_ref().map_or("none".to_owned(), Version::to_string);
    print_line(format_args!("node        {} of {}", status.node, status.env));
    print_line(format_args!("agent       {}", if status.agent { "running" } else { "not running" }));
    print_line(format_args!("version     {}", or_none(&status.version)));
    print_line(format_args!("desired     {}", or_none(&status.desired)));
    if let Some(version) = &status.went_back_from {
        print_line(format_args!("rolled back {version}: no server accepted its report in time"));
    }
    if let Some(run) = &status.running {
        print_line(format_args!("running     {run}"));
    }
    if let Some(LastRunStatus { run, end, attempt }) = &status.last {
        let word = match end {
            LedgerRunEnd::Validated => "validated".to_owned(),
            LedgerRunEnd::Pending => "pending".to_owned(),
            LedgerRunEnd::Failed => format!("failed, {attempt} in a row"),
        };
        print_line(format_args!("last run    {run}: {word}"));
    }
    match &status.pause {
        Some(pause) => print_line(format_args!("paused      {pause}")),
        None => print_line(format_args!("paused      no")),
    }
    print_line(format_args!("reports     {} waiting", status.reports_waiting));
    if !status.foreign_files.is_empty() {
        let names = status.foreign_files.join(", ");
        print_line(format_args!("outbox      has files that the agent did not write, see outbox/foreign: {names}"));
    }
    match &status.server.why_not {
        None => print_line(format_args!("server      answers")),
        Some(why) => print_line(format_args!("server      does not answer: {why}")),
    }
}
