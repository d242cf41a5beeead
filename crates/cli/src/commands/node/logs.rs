//! `muster node logs`: what runs say, also while they say it.

use std::time::Duration;

use muster_core::names::RunId;
use muster_core::node::status::Activity;
use muster_wire::operator::NodeDetail;
use muster_wire::run_log::LogEnd;
use tokio::time::sleep;

use crate::args::{Format, Globals};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::{Session, is_interruption};
use crate::signals::Signals;
use crate::terminal::Terminal;

use super::follow::{Printer, follow};
use super::show::node_or_host;

/// How often it is asked whether the next run has begun.
const NEXT: Duration = Duration::from_secs(1);

/// Show the log of a run, also while it goes on
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Without --run it is the run that goes on, or else the last one. --follow prints what comes, goes on with each run that \
follows, and ends with Ctrl-C; with --run it ends with that run. With -o json each line is an object.

Exit codes:
  0   it was shown
  1   there is no such node, run or environment
  2   cannot tell: the server is not there, or is not up to date

Examples:
  muster node logs web1
  muster node logs web1 --follow --tail 20
  muster node logs web1 --run 20261115t100455-000012-1f2e3d4c")]
pub struct Args {
    /// The node's name, or its host name
    #[arg(value_parser = node_or_host)]
    node: String,
    /// Which run; `muster node show` lists them
    #[arg(long, value_name = "ID")]
    run: Option<RunId>,
    /// Stay, and print what comes
    #[arg(short, long)]
    follow: bool,
    /// Begin with the last N lines of what is there
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    if globals.output == Format::Yaml {
        return Err(Failure::usage("a log has no form in YAML").hint("use -o json: one object a line"));
    }
    let mut session = Session::open(globals).await?;
    if !args.follow {
        return print(args, globals, &mut session, terminal).await;
    }
    let signals = Signals::new();
    let mut signals = signals.map_err(|error| Failure::failed(anyhow::Error::new(error).context("cannot wait")))?;
    tokio::select! {
        shown = print(args, globals, &mut session, terminal) => shown,
        // Whoever ends it has seen enough.
        () = signals.recv() => Ok(Exit::Yes),
    }
}

async fn print(
    args: &Args,
    globals: &Globals,
    session: &mut Session,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let detail = session.told(session.client().node(&session.env, &args.node).await)?;
    let node = detail.row.node.clone();
    let mut next = match args.run.clone().or_else(|| running(&detail)).or_else(|| last(&detail)) {
        Some(run) => Some(run),
        None if args.follow => {
            terminal.notes.note(format_args!("{node} has not made a run yet; waiting for the first"));
            None
        }
        None => {
            terminal.notes.note(format_args!("{node} has not made a run yet"));
            return Ok(Exit::Yes);
        }
    };
    let mut tail = args.tail;
    let mut shown: Option<RunId> = None;
    loop {
        if let Some(run) = next.take() {
            one(args, globals, session, terminal, &node, &run, tail.take()).await?;
            shown = Some(run);
        }
        if !args.follow || args.run.is_some() {
            return Ok(Exit::Yes);
        }
        sleep(NEXT).await;
        match session.client().node(&session.env, &node).await {
            Ok(detail) => next = running(&detail).or_else(|| last(&detail)).filter(|run| shown.as_ref() != Some(run)),
            Err(error) if is_interruption(&error) => session.find_again()?,
            Err(error) => return session.told(Err(error)),
        }
    }
}

async fn one(
    args: &Args,
    globals: &Globals,
    session: &mut Session,
    terminal: &mut Terminal,
    node: &muster_core::names::NodeName,
    run: &RunId,
    tail: Option<usize>,
) -> Result<(), Failure> {
    let log = session.told(session.client().run_log(&session.env, node, run).await)?;
    terminal.notes.note(format_args!("run {run} of {node}"));
    let mut printer = Printer { terminal, format: globals.output, node, run };
    let lines: Vec<&str> = log.text.lines().collect();
    let skip = tail.map_or(0, |tail| lines.len().saturating_sub(tail));
    if skip == 0 && log.offset > 0 {
        printer.line(&format!("… {} bytes are not there any more …", log.offset));
    }
    lines.iter().skip(skip).for_each(|line| printer.line(line));
    printer.terminal.out.flush();
    if args.follow && log.end != LogEnd::Finished {
        follow(session, &mut printer, log.offset + log.text.len() as u64).await?;
    }
    Ok(())
}

/// The run that the node makes now.
fn running(detail: &NodeDetail) -> Option<RunId> {
    match &detail.activity {
        Activity::Applying { run, .. } | Activity::Validating { run, .. } => Some(run.clone()),
        Activity::Idle | Activity::Retrying { .. } | Activity::Blocked { .. } => None,
    }
}

fn last(detail: &NodeDetail) -> Option<RunId> {
    detail.history.first().map(|past| past.run.clone())
}
