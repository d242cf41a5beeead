//! `muster node run`: a run now, watched to its end.

use std::time::Duration;

use muster_core::names::{NodeName, RunId};
use muster_core::report::{Outcome, Report, ResourceChange, RunResult, Verdict};
use muster_wire::operator::RunDetail;
use muster_wire::runs::{RunRequestProgress, StartRunRequest};
use tokio::time::sleep;

use crate::args::{Format, Globals};
use crate::author::author;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::{Session, is_interruption};
use crate::signals::Signals;
use crate::terminal::{Out, Table, Terminal, age, plain};

use super::follow::{Printer, follow};
use super::show::node_or_host;

/// How long the server keeps the question open whether the run has begun.
const WAIT: Duration = Duration::from_secs(20);
/// The last report is on its way when the log has ended.
const REPORT: Duration = Duration::from_millis(300);

/// Have a node run now, and watch it
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The node runs what it should run, whether or not anything has changed; a run that goes on is waited for first. Ctrl-C \
ends the watching and not the run. A node that is paused runs nothing, but for --noop.

Exit codes:
  0   the run is done: changed, unchanged, or shown with --noop
  1   it failed, or cannot be asked for: no such node, or it is paused
  2   cannot tell: the agent is not connected, it waits for others, or the server is not there

Examples:
  muster node run web1
  muster node run web1 --noop
  muster node run web1 --no-wait")]
pub struct Args {
    /// The node's name, or its host name
    #[arg(value_parser = node_or_host)]
    node: String,
    /// Change nothing: only show what would change
    #[arg(long)]
    noop: bool,
    /// Ask for it, and do not wait
    #[arg(long)]
    no_wait: bool,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let ask = StartRunRequest { noop: args.noop };
    let asked = session.told(session.client().ask_for_run(&session.env, &args.node, &author(), &ask).await)?;
    if let Some(since) = asked.silent_since {
        let silent = age(since, terminal.now);
        let note = format!("the agent of {} has had no connection for {silent}; it runs when it is back", asked.node);
        terminal.notes.note(note);
        if !args.no_wait {
            return Ok(Exit::CannotTell);
        }
    }
    if args.no_wait {
        terminal.out.answer(&asked, |out| out.line(format_args!("{} was asked for a run ({})", asked.node, asked.id)));
        return Ok(Exit::Yes);
    }
    let signals = Signals::new();
    let mut signals = signals.map_err(|error| Failure::failed(anyhow::Error::new(error).context("cannot wait")))?;
    let watched = tokio::select! {
        watched = watch(globals, &mut session, terminal, &asked.node, &asked.id) => Some(watched?),
        () = signals.recv() => None,
    };
    match watched {
        Some(exit) => Ok(exit),
        None => {
            let hint = format!("the run goes on; `muster node logs {} --follow` shows it", asked.node);
            terminal.notes.note(hint);
            Ok(Exit::CannotTell)
        }
    }
}

async fn watch(
    globals: &Globals,
    session: &mut Session,
    terminal: &mut Terminal,
    node: &NodeName,
    id: &str,
) -> Result<Exit, Failure> {
    let mut followed: Option<RunId> = None;
    loop {
        let asked = match session.client().asked_run(&session.env, node, id, WAIT).await {
            Ok(asked) => asked,
            Err(error) if is_interruption(&error) => {
                sleep(REPORT).await;
                session.find_again()?;
                continue;
            }
            Err(error) => return session.told(Err(error)).map_err(Failure::unanswered),
        };
        match asked.progress {
            RunRequestProgress::Waiting { silent_since: None } => {
                terminal.notes.note(format_args!("{node} has not begun yet; it may be busy with another run"));
            }
            RunRequestProgress::Waiting { silent_since: Some(_) } => {
                terminal.notes.note(format_args!("the agent of {node} is not connected; it runs when it is back"));
                return Ok(Exit::CannotTell);
            }
            RunRequestProgress::Running { run } if followed.as_ref() == Some(&run) => sleep(REPORT).await,
            RunRequestProgress::Running { run } => {
                terminal.notes.note(format_args!("run {run} of {node}"));
                if globals.output == Format::Table {
                    let mut printer = Printer { terminal, format: globals.output, node, run: &run };
                    follow(session, &mut printer, 0).await?;
                }
                followed = Some(run);
            }
            RunRequestProgress::Done { run } => {
                if followed.is_none() && globals.output == Format::Table {
                    let log = session.told(session.client().run_log(&session.env, node, &run).await)?;
                    Printer { terminal, format: globals.output, node, run: &run }.text(&log.text);
                }
                let detail = session.told(session.client().run(&session.env, node, &run).await)?;
                terminal.out.answer(&detail, |out| result(&detail, out));
                return Ok(exit(&detail));
            }
        }
    }
}

fn exit(detail: &RunDetail) -> Exit {
    let Some(last) = newest(detail) else { return Exit::CannotTell };
    match last.outcome {
        Outcome::Validated(Verdict::Passed) => Exit::Yes,
        Outcome::Validated(Verdict::Failed) => Exit::No,
        Outcome::Configured(result) | Outcome::Previewed(result) => match result {
            RunResult::Unchanged | RunResult::Changed => Exit::Yes,
            RunResult::Failed => Exit::No,
            RunResult::Pending => Exit::CannotTell,
        },
    }
}

fn newest(detail: &RunDetail) -> Option<&Report> {
    detail.reports.iter().max_by_key(|report| (report.incarnation, report.seq))
}

fn result(detail: &RunDetail, out: &mut Out) {
    let Some(last) = newest(detail) else {
        return out.line(format_args!("what run {} said is no longer there", detail.run));
    };
    let changes: Vec<&ResourceChange> = detail.reports.iter().flat_map(|report| &report.changes).collect();
    if !changes.is_empty() {
        out.gap();
        let mut table = Table::new(["RESOURCE", "PROPERTY", "OLD", "NEW"]);
        for change in changes {
            let property = change.property.clone().unwrap_or_default();
            table.row([&change.resource, &property, &change.old, &change.new].map(|text| plain::one_line(text)));
        }
        out.table(table);
    }
    out.gap();
    let counts = last.counts;
    let word = match last.outcome {
        Outcome::Previewed(result) => format!("preview: {}", result.word()),
        Outcome::Validated(Verdict::Passed) => "validated".to_owned(),
        Outcome::Validated(Verdict::Failed) => "invalid".to_owned(),
        Outcome::Configured(result) => result.word().to_owned(),
    };
    out.line(format_args!(
        "{word}: {} resources, {} changed, {} failed, {} skipped",
        counts.total, counts.changed, counts.failed, counts.skipped
    ));
    if let Some(reason) = &last.reason {
        out.line(format_args!("  {}", plain::one_line(&reason.to_string())));
    }
    last.errors.iter().for_each(|error| out.line(format_args!("  {}", plain::one_line(&error.to_string()))));
}
