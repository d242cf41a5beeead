//! `muster node run`: requests runs of nodes. The run of a single node is followed to its result.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_core::names::{NodeName, RunId, Version};
use muster_core::node::status::{NodeState, Reason};
use muster_core::report::{Outcome, Report, RunOptions, RunResult, Verdict};
use muster_wire::operator::{NodeRow, RunDetail};
use muster_wire::runs::{RunLog, RunRequestProgress, StartRunRequest};
use tokio::time::{Instant, sleep};

use crate::args::{Globals, OutputFormat, node_filter_help, node_or_host_arg};
use crate::connect::{Session, is_retryable};
use crate::failure::{Exit, Failure};
use crate::output::{Out, Terminal, age, run_result, text};
use crate::process::Signals;
use crate::variables::author;

use super::logs::{LogPrinter, follow};
use super::run_many;

/// Time that the server holds a request for the progress of the run.
pub(super) const HOLD: Duration = Duration::from_secs(20);
/// Pause between two requests, such as between the end of the log and the last report.
pub(super) const POLL_PAUSE: Duration = Duration::from_millis(300);

/// Run nodes now: follow the run of one, or print a summary of several
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = concat!("\
A node runs its desired version even if nothing has changed. A run in progress finishes first. Ctrl-C stops following, \
not the runs. A paused node refuses to run, except with --noop.

With --version and --noop a node previews a release that was pushed, such as one of a branch. Nothing of it is kept.
With --tags Puppet applies only resources with one of these tags, and what they contain. Without --noop the node must \
have validated its desired version, because such a run proves nothing about the rest.

", node_filter_help!(), "

Exit codes:
  0   the runs have finished: changed, unchanged, or previewed with --noop
  1   a run failed or was refused: the node does not exist, or is paused
  2   unknown: an agent is not connected, a run is pending, or the server cannot be reached

Examples:
  muster node run web1
  muster node run web1 --noop --version v9
  muster node run web1 --tags profile::web --debug
  muster node run web1 --no-wait
  muster node run role=app --max 3
  muster node run web1 web2 -o json | jq -r '.nodes[] | select(.result == \"failed\") | .node'"))]
pub struct Args {
    /// Name or host name of a node, several of them, or a filter such as role=app
    #[arg(value_name = "NODE|FILTER", required = true)]
    nodes: Vec<String>,
    /// Preview: show the changes without making them
    #[arg(long)]
    noop: bool,
    /// Preview this release in place of the desired one
    #[arg(long, requires = "noop")]
    version: Option<Version>,
    /// Only resources with one of these tags of Puppet; may be repeated
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    tags: Vec<String>,
    /// Log debug messages of Puppet too
    #[arg(long)]
    debug: bool,
    /// Maximum number of nodes that run at the same time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    max: u16,
    /// Do not wait for the run of a single node
    #[arg(long)]
    no_wait: bool,
}

impl Args {
    fn request(&self) -> StartRunRequest {
        let options = RunOptions { version: self.version.clone(), tags: self.tags.clone(), debug: self.debug };
        StartRunRequest { noop: self.noop, options }
    }

    /// The node, if there is only one.
    fn single(&self) -> Option<&str> {
        match self.nodes.as_slice() {
            [node] if node_or_host_arg(node).is_ok() => Some(node),
            _ => None,
        }
    }

    /// Nodes that are named, and match all terms of the filter.
    async fn select(&self, session: &Session) -> Result<Vec<NodeName>, Failure> {
        let (names, mut terms): (Vec<&str>, Vec<&str>) =
            self.nodes.iter().map(String::as_str).partition(|text| node_or_host_arg(text).is_ok());
        let names = BTreeSet::from_iter(names);
        let by_name = format!("name={}", Vec::from_iter(names.iter().copied()).join(","));
        if !names.is_empty() {
            terms.insert(0, &by_name);
        }
        let rows = session.map_err(session.client().nodes_of(&session.env, &terms.join(" ")).await)?.items;
        let unknown: Vec<&str> = names
            .iter()
            .copied()
            .filter(|name| rows.iter().all(|row| row.node.as_str() != *name && row.host != *name))
            .collect();
        // A host name matches too: the rows are fewer only if a name is unknown.
        if terms.len() == 1 && rows.len() < names.len() {
            let failure =
                Failure::failed(anyhow::anyhow!("not in the design of {}: {}", session.env, unknown.join(", ")));
            return Err(failure.hint("`muster node list` shows the nodes that are there"));
        }
        if rows.is_empty() {
            let failure = Failure::failed(anyhow::anyhow!("{} has no matching nodes", session.env));
            return Err(failure.hint("`muster node list FILTER` shows the nodes that match"));
        }
        Ok(rows.into_iter().map(|row| row.node).collect())
    }
}

pub(in crate::commands) async fn run(args: &Args, globals: &Globals, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut session = Session::open(globals).await?;
    let request = args.request();
    let Some(node) = args.single() else {
        if args.no_wait {
            return Err(Failure::usage("--no-wait is for the run of a single node"));
        }
        let nodes = args.select(&session).await?;
        return run_many::run(&session, nodes, &request, usize::from(args.max), terminal).await;
    };
    let accepted = session.map_err(session.client().request_run(&session.env, node, &author(), &request).await)?;
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

pub(super) fn release_removed(version: &Version) -> String {
    format!("release {version} was removed before its preview began; nothing was run")
}

async fn follow_run(
    globals: &Globals,
    session: &mut Session,
    terminal: &mut Terminal,
    node: &NodeName,
    id: &str,
) -> Result<Exit, Failure> {
    let started = Instant::now();
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
                let row = session.map_err(session.client().node(&session.env, node).await)?.row;
                terminal.notes.note(waiting_text(&row, started.elapsed()));
            }
            RunRequestProgress::Waiting { silent_since: Some(_) } => {
                terminal
                    .notes
                    .note(format_args!("the agent of {node} is not connected; the run starts when it reconnects"));
                return Ok(Exit::CannotTell);
            }
            RunRequestProgress::ReleaseRemoved { version } => {
                return Err(Failure::failed(anyhow::anyhow!(release_removed(&version)))
                    .hint("`muster release list` shows the releases that are there"));
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

/// Reason that a connected agent has not started a run.
fn waiting_text(row: &NodeRow, waited: Duration) -> String {
    let node = &row.node;
    if matches!(row.state, NodeState::Applying | NodeState::Validating) {
        return format!("{node} is {}: the run starts afterwards", row.state.label());
    }
    if let Some(why @ Reason::Paused { .. }) = &row.reason {
        return format!("{node} is paused: {why}");
    }
    let seconds = waited.as_secs();
    format!("the agent of {node} is connected, and has not started the run for {seconds}s: it may be stopped or frozen")
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

pub(super) fn newest(detail: &RunDetail) -> Option<&Report> {
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
    use crate::output::testing::node_row;

    #[test]
    fn reason_of_a_waiting_run_is_named() {
        let waited = Duration::from_secs(20);
        assert_eq!(
            waiting_text(&node_row("web1", NodeState::Validated, None), waited),
            "the agent of web1 is connected, and has not started the run for 20s: it may be stopped or frozen"
        );
        let applying = node_row("web1", NodeState::Applying, None);
        assert_eq!(waiting_text(&applying, waited), "web1 is applying: the run starts afterwards");
    }

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
