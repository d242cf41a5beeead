//! `muster node logs`: prints the log of a run, and follows it.

use std::time::Duration;

use muster_core::names::{NodeName, RunId};
use muster_core::node::status::Activity;
use muster_wire::operator::NodeDetail;
use muster_wire::runs::LogEnd;
use tokio::time::sleep;

use crate::args::filter::node_or_host_arg;
use crate::args::{Format, Globals};
use crate::connect::{Session, is_retryable};
use crate::failure::{Exit, Failure};
use crate::output::Terminal;
use crate::process::Signals;

use super::follow::{LogPrinter, follow};

/// Pause between two requests for the next run.
const NEXT_RUN_PAUSE: Duration = Duration::from_secs(1);

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
    if globals.output == Format::Yaml {
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
        follow(session, &mut printer, log.offset + log.text.len() as u64).await?;
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
