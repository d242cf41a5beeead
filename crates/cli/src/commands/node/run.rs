//! `muster node run`: requests a run of a node, and follows it to its result.

use std::time::Duration;

use muster_core::names::{NodeName, RunId};
use muster_core::report::{Outcome, Report, RunResult, Verdict};
use muster_wire::operator::RunDetail;
use muster_wire::runs::{RunLog, RunRequestProgress, StartRunRequest};
use tokio::time::sleep;

use crate::args::{Globals, OutputFormat, node_or_host_arg};
use crate::connect::{Session, is_retryable};
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, age, run_result, text};
use crate::process::Signals;
use crate::variables::author;

use super::logs::{LogPrinter, follow};

/// Time that the server holds a request for the progress of the run.
const HOLD: Duration = Duration::from_secs(20);
/// Pause between two requests, such as between the end of the log and the last report.
const POLL_PAUSE: Duration = Duration::from_millis(300);

/// Run a node now, and follow the run
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
The node runs its desired version even if nothing has changed. A run in progress finishes first. Ctrl-C stops following, \
not the run. A paused node refuses to run, except with --noop.

Exit codes:
  0   the run has finished: changed, unchanged, or previewed with --noop
  1   the run failed or was refused: the node does not exist, or is paused
  2   unknown: the agent is not connected, the run is pending, or the server cannot be reached

Examples:
  muster node run web1
  muster node run web1 --noop
  muster node run web1 --no-wait")]
pub struct Args {
    /// Name or host name of the node
    #[arg(value_parser = node_or_host_arg)]
    node: String,
    /// Preview: show the changes without making them
    #[arg(long)]
    noop: bool,
    /// Do not wait for the run
    #[arg(long)]
    no_wait: bool,
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let request = StartRunRequest { noop: args.noop };
    let accepted =
        session.map_err(session.client().request_run(&session.env, &args.node, &author(), &request).await)?;
    if let Some(since) = accepted.silent_since {
        let silent = age(since, terminal.now);
        let note = format!(
            "the agent of {} has been disconnected for {silent}; the run starts when it reconnects",
            accepted.node
        );
        terminal.notes.note(note);
        if !args.no_wait {
            return Ok(Exit::CannotTell);
        }
    }
    if args.no_wait {
        terminal
            .out
            .answer(&accepted, |out| out.line(format_args!("run requested for {} ({})", accepted.node, accepted.id)));
        return Ok(Exit::Yes);
    }
    let signals = Signals::new();
    let mut signals =
        signals.map_err(|error| Failure::failed(anyhow::Error::new(error).context("cannot listen for signals")))?;
    let followed = tokio::select! {
        followed = follow_run(globals, &mut session, terminal, &accepted.node, &accepted.id) => Some(followed?),
        () = signals.recv() => None,
    };
    match followed {
        Some(exit) => Ok(exit),
        None => {
            let hint = format!("the run continues; follow it with `muster node logs {} --follow`", accepted.node);
            terminal.notes.note(hint);
            Ok(Exit::CannotTell)
        }
    }
}

async fn follow_run(
    globals: &Globals,
    session: &mut Session,
    terminal: &mut Terminal,
    node: &NodeName,
    id: &str,
) -> Result<Exit, Failure> {
    let mut followed: Option<RunId> = None;
    // Bytes of the log that were printed.
    let mut printed = 0;
    loop {
        let request = match session.client().run_request(&session.env, node, id, HOLD).await {
            Ok(request) => request,
            Err(error) if is_retryable(&error) => {
                sleep(POLL_PAUSE).await;
                session.rediscover()?;
                continue;
            }
            Err(error) => return session.map_err(Err(error)).map_err(Failure::as_cannot_tell),
        };
        match request.progress {
            RunRequestProgress::Waiting { silent_since: None } => {
                terminal.notes.note(format_args!("{node} has not started yet; another run may be in progress"));
            }
            RunRequestProgress::Waiting { silent_since: Some(_) } => {
                terminal
                    .notes
                    .note(format_args!("the agent of {node} is not connected; the run starts when it reconnects"));
                return Ok(Exit::CannotTell);
            }
            RunRequestProgress::Running { run } if followed.as_ref() == Some(&run) => sleep(POLL_PAUSE).await,
            RunRequestProgress::Running { run } => {
                terminal.notes.note(format_args!("run {run} of {node}"));
                if globals.output == OutputFormat::Table {
                    let mut printer = LogPrinter { terminal, format: globals.output, node, run: &run };
                    printed = 0;
                    follow(session, &mut printer, &mut printed).await?;
                }
                followed = Some(run);
            }
            RunRequestProgress::Done { run } => {
                if globals.output == OutputFormat::Table {
                    let printed = if followed.as_ref() == Some(&run) { printed } else { 0 };
                    match session.map_err(session.client().run_log(&session.env, node, &run).await) {
                        Ok(log) => {
                            LogPrinter { terminal, format: globals.output, node, run: &run }.text(after(&log, printed));
                        }
                        // It was read live.
                        Err(_) if printed > 0 => {}
                        Err(failure) => return Err(failure),
                    }
                }
                let detail = session.map_err(session.client().run(&session.env, node, &run).await)?;
                terminal.out.answer(&detail, |out| show_result(&detail, out));
                return Ok(exit(&detail));
            }
        }
    }
}

/// The part of a log that was not printed while the run was followed: a short run may end before the server knows its log.
fn after(log: &RunLog, printed: u64) -> &str {
    let from = usize::try_from(printed.saturating_sub(log.offset)).unwrap_or(usize::MAX);
    log.text.get(from..).unwrap_or_default()
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

/// The log has the changes, so they are not listed again.
fn show_result(detail: &RunDetail, out: &mut Out) {
    let Some(last) = newest(detail) else {
        return out.line(format_args!("the reports of run {} are no longer available", detail.run));
    };
    out.gap();
    let counts = last.counts;
    let result = run_result(last.outcome, last.check_count());
    out.line(format_args!(
        "{result}: {} resources, {} changed, {} failed, {} skipped",
        counts.total, counts.changed, counts.failed, counts.skipped
    ));
    if let Some(reason) = &last.reason {
        out.line(format_args!("  {}", text::one_line(&reason.to_string())));
    }
    last.errors.iter().for_each(|error| out.line(format_args!("  {}", text::one_line(&error.to_string()))));
}

#[cfg(test)]
mod tests {
    use muster_wire::runs::LogEnd;

    use super::*;

    #[test]
    fn rest_of_the_log_is_what_was_not_printed() {
        let log = |offset, text: &str| RunLog { offset, text: text.to_owned(), end: LogEnd::Finished };
        for (log, printed, rest) in [
            (log(0, "one\ntwo\n"), 0, "one\ntwo\n"),
            (log(0, "one\ntwo\n"), 4, "two\n"),
            (log(0, "one\ntwo\n"), 8, ""),
            (log(0, "one\ntwo\n"), 99, ""),
            (log(4, "two\n"), 0, "two\n"),
            (log(4, "two\n"), 6, "o\n"),
        ] {
            assert_eq!(after(&log, printed), rest, "{log:?}, {printed}");
        }
    }
}
