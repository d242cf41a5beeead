//! `muster node logs`: prints the log of a run, and follows it while it is written.

use std::time::Duration;

use muster_core::names::{NodeName, RunId};
use muster_core::node::status::Activity;
use muster_core::report::log_time::split_time;
use muster_wire::client::{ClientError, LogStream};
use muster_wire::operator::NodeDetail;
use muster_wire::problem::ProblemCode;
use muster_wire::runs::{LogEnd, LogEvent};
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::args::{Globals, OutputFormat, node_or_host_arg};
use crate::connect::{Session, is_retryable};
use crate::failure::{Exit, Failure};
use crate::output::{Terminal, text};
use crate::process::Signals;

/// Pause between two requests for the next run.
const NEXT_RUN_PAUSE: Duration = Duration::from_secs(1);

/// The server sends a keep-alive every 10 s. After two missing ones the connection is dead.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(25);
/// Pause before a reconnect. A reconnecting agent or a restarted server is back within two seconds.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// Consecutive reconnects without new text before giving up.
const RECONNECTS: u32 = 20;

/// Print the log of a run
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Without --run the current run is printed, or else the last one. --follow prints new lines and continues with later runs \
until Ctrl-C; with --run it ends with that run. With -o json each line is an object.

Exit codes:
  0   success
  1   the node, run or environment does not exist
  2   unknown: the server cannot be reached, or is not up to date

Examples:
  muster node logs web1
  muster node logs web1 --follow --tail 20
  muster node logs web1 --run 20261115t100455-000012-1f2e3d4c")]
pub struct Args {
    /// Name or host name of the node
    #[arg(value_parser = node_or_host_arg)]
    node: String,
    /// Id of the run; `muster node show` lists them
    #[arg(long, value_name = "ID")]
    run: Option<RunId>,
    /// Wait for new lines and print them
    #[arg(short, long)]
    follow: bool,
    /// Start with the last N lines
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    if globals.output == OutputFormat::Yaml {
        return Err(Failure::usage("logs cannot be printed as YAML").hint("use -o json: one object per line"));
    }
    let mut session = Session::open(globals).await?;
    if !args.follow {
        return print(args, globals, &mut session, terminal).await;
    }
    let signals = Signals::new();
    let mut signals =
        signals.map_err(|error| Failure::failed(anyhow::Error::new(error).context("cannot listen for signals")))?;
    tokio::select! {
        printed = print(args, globals, &mut session, terminal) => printed,
        // Ctrl-C is the regular end of --follow.
        () = signals.recv() => Ok(Exit::Yes),
    }
}

async fn print(
    args: &Args,
    globals: &Globals,
    session: &mut Session,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let detail = session.map_err(session.client().node(&session.env, &args.node).await)?;
    let node = detail.row.node.clone();
    let mut next = match args.run.clone().or_else(|| current_run(&detail)).or_else(|| last_run(&detail)) {
        Some(run) => Some(run),
        None if args.follow => {
            terminal.notes.note(format_args!("{node} has no runs yet; waiting for the first"));
            None
        }
        None => {
            terminal.notes.note(format_args!("{node} has no runs yet"));
            return Ok(Exit::Yes);
        }
    };
    let mut tail = args.tail;
    let mut shown: Option<RunId> = None;
    loop {
        if let Some(run) = next.take() {
            print_run(args, globals, session, terminal, &node, &run, tail.take()).await?;
            shown = Some(run);
        }
        if !args.follow || args.run.is_some() {
            return Ok(Exit::Yes);
        }
        sleep(NEXT_RUN_PAUSE).await;
        match session.client().node(&session.env, &node).await {
            Ok(detail) => {
                next = current_run(&detail).or_else(|| last_run(&detail)).filter(|run| shown.as_ref() != Some(run))
            }
            Err(error) if is_retryable(&error) => session.rediscover()?,
            Err(error) => return session.map_err(Err(error)),
        }
    }
}

async fn print_run(
    args: &Args,
    globals: &Globals,
    session: &mut Session,
    terminal: &mut Terminal,
    node: &NodeName,
    run: &RunId,
    tail: Option<usize>,
) -> Result<(), Failure> {
    let log = session.map_err(session.client().run_log(&session.env, node, run).await)?;
    terminal.notes.note(format_args!("run {run} of {node}"));
    let mut printer = LogPrinter { terminal, format: globals.output, node, run };
    let lines: Vec<&str> = log.text.lines().collect();
    let skip = tail.map_or(0, |tail| lines.len().saturating_sub(tail));
    if skip == 0 && log.offset > 0 {
        printer.line(&format!("… {} bytes are no longer available …", log.offset));
    }
    lines.iter().skip(skip).for_each(|line| printer.line(line));
    printer.terminal.out.flush();
    if args.follow && log.end != LogEnd::Finished {
        let mut at = log.offset + log.text.len() as u64;
        follow(session, &mut printer, &mut at).await?;
    }
    Ok(())
}

/// The run in progress.
fn current_run(detail: &NodeDetail) -> Option<RunId> {
    match &detail.activity {
        Activity::Applying { run, .. } | Activity::Validating { run, .. } => Some(run.clone()),
        Activity::Idle | Activity::Retrying { .. } | Activity::Blocked { .. } => None,
    }
}

fn last_run(detail: &NodeDetail) -> Option<RunId> {
    detail.history.first().map(|past| past.run.clone())
}

/// The end of a log stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowEnd {
    /// The run has finished.
    Finished,
    /// No server or agent has the run any more.
    Lost,
}

/// One line of a log as JSON.
#[derive(Serialize)]
struct LineRow<'a> {
    node: &'a NodeName,
    run: &'a RunId,
    /// Time of the line, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<&'a str>,
    line: &'a str,
}

/// Prints the lines of one run.
#[derive(Debug)]
pub(super) struct LogPrinter<'a> {
    pub(super) terminal: &'a mut Terminal,
    pub(super) format: OutputFormat,
    pub(super) node: &'a NodeName,
    pub(super) run: &'a RunId,
}

impl LogPrinter<'_> {
    pub(super) fn text(&mut self, text: &str) {
        text.lines().for_each(|line| self.line(line));
        self.terminal.out.flush();
    }

    pub(super) fn line(&mut self, line: &str) {
        match self.format {
            OutputFormat::Table => self.terminal.out.line(text::without_controls(line)),
            // One object per line, for readers that process the stream.
            OutputFormat::Json | OutputFormat::Yaml => {
                let (time, line) = split_time(line);
                let row = LineRow { node: self.node, run: self.run, time, line };
                if let Ok(text) = serde_json::to_string(&row) {
                    self.terminal.out.line(text);
                }
            }
        }
    }
}

/// Prints the log of a run from an offset until the run has finished. Reconnects if the connection is lost.
pub(super) async fn follow(
    session: &mut Session,
    printer: &mut LogPrinter<'_>,
    at: &mut u64,
) -> Result<FollowEnd, Failure> {
    let mut reconnects = 0;
    loop {
        let answer = session.client().follow_log(&session.env, printer.node, printer.run, *at).await;
        let before = *at;
        match answer {
            Ok(stream) => {
                if let Some(end) = read(stream, printer, at).await {
                    return Ok(end);
                }
            }
            Err(error) if is_unknown(&error) => return Ok(FollowEnd::Lost),
            Err(error) if is_retryable(&error) => session.rediscover()?,
            Err(error) => return session.map_err(Err(error)),
        }
        reconnects = if *at > before { 0 } else { reconnects + 1 };
        if reconnects >= RECONNECTS {
            return Ok(FollowEnd::Lost);
        }
        sleep(RECONNECT_PAUSE).await;
    }
}

fn is_unknown(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownRun)
}

/// Reads one stream to its end; none if the log may continue on another connection.
async fn read(mut stream: LogStream, printer: &mut LogPrinter<'_>, at: &mut u64) -> Option<FollowEnd> {
    while let Ok(Ok(Some(event))) = timeout(KEEP_ALIVE_TIMEOUT, stream.next()).await {
        match event {
            LogEvent::Text { offset, text } => {
                *at = offset + text.len() as u64;
                printer.text(&text);
            }
            LogEvent::Cut { bytes } => {
                *at += bytes;
                printer.line(&format!("… {bytes} bytes are no longer available …"));
            }
            LogEvent::Alive => {}
            LogEvent::End { end: LogEnd::Finished } => return Some(FollowEnd::Finished),
            LogEvent::End { end: LogEnd::SoFar | LogEnd::AgentGone | LogEnd::ServerStops } => return None,
        }
    }
    None
}
