//! `muster-agent status`: what the node runs and should run, as it knows it, and whether a server answers.

use std::process::ExitCode;

use serde::Serialize;

use muster_core::names::{EnvName, NodeName, RunId, Version};
use muster_core::node::pause::NodePause;

use crate::config::Config;
use crate::ledger::{Ledger, RunEnd};
use crate::release::memory::Memory;
use crate::state_dir::Layout;
use crate::verbs::ask::ask;
use crate::verbs::known::Known;
use crate::verbs::{YES, say};

#[derive(Debug, Serialize)]
struct Status {
    env: EnvName,
    node: NodeName,
    /// Whether an agent lives in the state directory.
    agent: bool,
    /// What the node has proved to run.
    runs: Option<Version>,
    /// What it should run: by the server's word or, without that, as it was heard last.
    should_run: Option<Version>,
    /// The version that it went back from, and does not try again before there is something newer.
    went_back_from: Option<Version>,
    running: Option<RunId>,
    last: Option<Last>,
    pause: Option<NodePause>,
    /// Reports that wait to be sent.
    reports_waiting: usize,
    /// No release with a lower serial runs unless somebody allows it.
    highest_serial: Option<u64>,
    server: Server,
}

#[derive(Debug, Serialize)]
struct Last {
    run: RunId,
    end: RunEnd,
    /// How many in a row have failed.
    attempt: u32,
}

#[derive(Debug, Serialize)]
struct Server {
    answers: bool,
    why_not: Option<String>,
}

pub async fn run(config: &Config, json: bool) -> anyhow::Result<ExitCode> {
    let known = Known::read(config)?;
    let (told, why_not) = match ask(config).await {
        Ok(told) => (Some(told), None),
        Err(why) => (None, Some(why)),
    };
    let ledger = known.ledger.as_ref();
    let memory = std::fs::read(Layout::at(&config.state_dir).release_memory()).ok();
    let memory: Option<Memory> = memory.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let heard = ledger.and_then(|ledger| Some(ledger.desired.as_ref()?.version.clone()));
    let status = Status {
        env: config.env.clone(),
        node: config.node.clone(),
        agent: known.lives,
        runs: known.local().map(|local| local.version.clone()),
        should_run: told.as_ref().map_or(heard, |told| Some(told.desired.as_ref()?.version.clone())),
        went_back_from: ledger.and_then(went_back_from),
        running: ledger.and_then(|ledger| Some(ledger.running.as_ref()?.run.clone())),
        last: ledger.and_then(|ledger| ledger.last.as_ref()).map(|last| Last {
            run: last.run.clone(),
            end: last.end,
            attempt: last.attempt,
        }),
        pause: told.as_ref().map_or_else(|| ledger.and_then(|ledger| ledger.pause.clone()), |told| told.pause.clone()),
        reports_waiting: known.waiting,
        highest_serial: memory.and_then(|memory| memory.highest),
        server: Server { answers: told.is_some(), why_not },
    };
    if json {
        say(format_args!("{}", serde_json::to_string_pretty(&status)?));
    } else {
        print(&status);
    }
    Ok(ExitCode::from(YES))
}

fn went_back_from(ledger: &Ledger) -> Option<Version> {
    let trial = ledger.trial_now()?;
    ledger.gave_up().map(|_| trial.version.clone())
}

fn print(status: &Status) {
    let or_none = |version: &Option<Version>| version.as_ref().map_or("none".to_owned(), Version::to_string);
    say(format_args!("node        {} of {}", status.node, status.env));
    say(format_args!("agent       {}", if status.agent { "lives" } else { "does not run" }));
    say(format_args!("runs        {}", or_none(&status.runs)));
    say(format_args!("should run  {}", or_none(&status.should_run)));
    if let Some(version) = &status.went_back_from {
        say(format_args!("went back   from {version}: no server took a report of it in time"));
    }
    if let Some(run) = &status.running {
        say(format_args!("running     {run}"));
    }
    if let Some(Last { run, end, attempt }) = &status.last {
        let word = match end {
            RunEnd::Validated => "validated".to_owned(),
            RunEnd::Pending => "pending".to_owned(),
            RunEnd::Failed => format!("failed, {attempt} in a row"),
        };
        say(format_args!("last run    {run}: {word}"));
    }
    match &status.pause {
        Some(pause) => say(format_args!("paused      {pause}")),
        None => say(format_args!("paused      no")),
    }
    say(format_args!("reports     {} waiting", status.reports_waiting));
    match &status.server.why_not {
        None => say(format_args!("server      answers")),
        Some(why) => say(format_args!("server      does not answer: {why}")),
    }
}
