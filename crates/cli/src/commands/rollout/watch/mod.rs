//! Follows a rollout until it ends, and into its rollback.

mod transcript;

use std::time::Duration;

use jiff::SignedDuration;
use muster_core::names::EnvName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{FailedNode, RolloutPhase};
use muster_wire::client::{RolloutRef, StatusQuery};
use muster_wire::hints::Hint;
use muster_wire::rollout::RolloutStatus;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::args::OutputFormat;
use crate::connect::{Session, is_retryable};
use crate::failure::{Exit, Failure};
use crate::output::{LiveLines, Out, Terminal, text};

use super::status::RolloutOutcome;
use super::{labels, status_view};

use self::transcript::RolloutTranscript;

/// Time that the server holds a request until something changes. Each answer also updates ages and deadlines on the screen.
const HOLD: Duration = Duration::from_secs(5);
/// Pause between two requests: a fleet of thousands reports many times a second, faster than an operator can read.
const POLL_PAUSE: Duration = Duration::from_millis(200);
/// Table rows that fit a screen; waves that have passed are left out first, then those that have not started.
const ROWS: usize = 14;

/// The rollout that was rolled back.
struct RolledBackRollout {
    id: RolloutId,
    reason: String,
    failed: Vec<FailedNode>,
}

/// Shows a rollout until it ends or needs an operator; returns the exit code. Ctrl-C stops following, not the rollout.
pub(in crate::commands) async fn follow(
    session: &mut Session,
    which: RolloutRef,
    timeout: Option<SignedDuration>,
    format: OutputFormat,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mut which = which;
    tokio::select! {
        ended = follow_until_end(session, &mut which, timeout, format, terminal) => return ended,
        Ok(()) = tokio::signal::ctrl_c() => {}
    }
    let rollout = match which {
        RolloutRef::Id(id) => format!("rollout {id}"),
        RolloutRef::Active => "the rollout".to_owned(),
    };
    terminal.notes.note(format_args!("{rollout} continues; follow it again with `muster rollout status --watch`"));
    Ok(Exit::Interrupted)
}

/// `which` is updated to the rollout that is followed.
async fn follow_until_end(
    session: &mut Session,
    which: &mut RolloutRef,
    timeout: Option<SignedDuration>,
    format: OutputFormat,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let deadline = timeout.and_then(|timeout| Duration::try_from(timeout).ok()).map(|timeout| Instant::now() + timeout);
    let mut view = RolloutView::new(format, terminal);
    let mut rolled_back: Option<RolledBackRollout> = None;
    let mut after = None;
    loop {
        let query = StatusQuery { after, wait: HOLD, numbers: true };
        let Some(status) = request_status(session, *which, query, deadline, terminal).await? else {
            return Ok(view.timed_out(session, *which, timeout, terminal).await);
        };
        // From here on this rollout, even if another one is started.
        *which = RolloutRef::Id(status.record.id);
        view.show(session, &status, terminal);
        match RolloutOutcome::of_phase(&status.record.phase) {
            RolloutOutcome::InProgress => after = Some(status.revision),
            RolloutOutcome::RolledBack(by) => {
                view.print(&format!("rollout {by} rolls it back"), &status, terminal);
                rolled_back.get_or_insert_with(|| rolled_back_rollout(&status));
                (*which, after) = (RolloutRef::Id(by), None);
            }
            outcome @ (RolloutOutcome::Completed | RolloutOutcome::Failed | RolloutOutcome::CannotTell) => {
                view.clear();
                let status = full_status(session, *which, status, format).await?;
                terminal.out.answer(&status, |out| view.show_end(&session.env, &status, rolled_back.as_ref(), out));
                let completed_rollback = rolled_back.is_some() && outcome == RolloutOutcome::Completed;
                return Ok(if completed_rollback { Exit::No } else { outcome.exit() });
            }
        }
        let next = Instant::now() + POLL_PAUSE;
        sleep_until(deadline.map_or(next, |deadline| next.min(deadline))).await;
    }
}

/// The status with all nodes, for JSON and YAML.
async fn full_status(
    session: &Session,
    which: RolloutRef,
    status: RolloutStatus,
    format: OutputFormat,
) -> Result<RolloutStatus, Failure> {
    match format {
        OutputFormat::Table => Ok(status),
        OutputFormat::Json | OutputFormat::Yaml => {
            session.map_err(session.client().rollout(&session.env, which, StatusQuery::default()).await)
        }
    }
}

fn rolled_back_rollout(status: &RolloutStatus) -> RolledBackRollout {
    let why = match &status.record.phase {
        RolloutPhase::RolledBack { why, .. } | RolloutPhase::Paused { why } => Some(why),
        RolloutPhase::Running
        | RolloutPhase::Completed
        | RolloutPhase::Aborted { .. }
        | RolloutPhase::Superseded { .. } => None,
    };
    let mut failed = why.map(|why| status_view::failed_of(why).to_vec()).unwrap_or_default();
    if failed.is_empty() {
        failed.clone_from(&status.failed);
    }
    let reason = why.map(status_view::rollback_reason).unwrap_or_default();
    RolledBackRollout { id: status.record.id, reason, failed }
}

/// Requests the status, and waits for a server that is unreachable. None at the deadline.
async fn request_status(
    session: &mut Session,
    which: RolloutRef,
    query: StatusQuery,
    deadline: Option<Instant>,
    terminal: &mut Terminal,
) -> Result<Option<RolloutStatus>, Failure> {
    let mut unreachable = false;
    loop {
        let request = session.client().rollout(&session.env, which, query);
        let answer = match deadline {
            None => request.await,
            Some(deadline) => match timeout_at(deadline, request).await {
                Ok(answer) => answer,
                Err(_) => return Ok(None),
            },
        };
        match answer {
            Ok(status) => {
                if unreachable {
                    terminal.notes.note("the server is reachable again");
                }
                return Ok(Some(status));
            }
            Err(error) if is_retryable(&error) => {
                if !std::mem::replace(&mut unreachable, true) {
                    terminal.notes.note(format_args!("{error}; waiting for the server"));
                }
                // Without an announcement the old address is retried.
                let _ = session.rediscover();
            }
            Err(error) => return Err(session.server.failure(error)),
        }
        let next = Instant::now() + HOLD / 10;
        match deadline {
            Some(deadline) if deadline <= next => return Ok(None),
            Some(_) | None => sleep_until(next).await,
        }
    }
}

/// The view of a rollout: redrawn on a terminal, line by line in a pipe, nothing for JSON and YAML.
enum RolloutView {
    Live(LiveLines),
    Transcript(RolloutTranscript),
    Silent,
}

impl RolloutView {
    fn new(format: OutputFormat, terminal: &Terminal) -> Self {
        match format {
            OutputFormat::Json | OutputFormat::Yaml => RolloutView::Silent,
            OutputFormat::Table if terminal.notes.shows_progress() && terminal.out.is_terminal() => {
                RolloutView::Live(LiveLines::new())
            }
            OutputFormat::Table => RolloutView::Transcript(RolloutTranscript::default()),
        }
    }

    fn show(&mut self, session: &Session, status: &RolloutStatus, terminal: &mut Terminal) {
        match self {
            RolloutView::Live(live) => live.show(live_lines(&session.env, status, terminal.out.width())),
            RolloutView::Transcript(transcript) => {
                transcript.changes(&session.env, status).into_iter().for_each(|line| terminal.out.line(line));
                terminal.out.flush();
            }
            RolloutView::Silent => {}
        }
    }

    /// Prints a line that stays on the screen.
    fn print(&mut self, text: &str, status: &RolloutStatus, terminal: &mut Terminal) {
        match self {
            RolloutView::Live(live) => {
                live.clear();
                terminal.out.line(format_args!("rollout {} ended, and {text}", status.record.id));
                status_view::failed_lines(status).into_iter().for_each(|line| terminal.out.line(line));
                terminal.out.flush();
                *live = LiveLines::new();
            }
            RolloutView::Transcript(transcript) => {
                let failed = transcript.unprinted_failures(status);
                failed.iter().for_each(|line| terminal.out.line(transcript.line(status, line)));
                terminal.out.line(transcript.line(status, text));
                terminal.out.flush();
            }
            RolloutView::Silent => {}
        }
    }

    fn clear(&mut self) {
        match self {
            RolloutView::Live(live) => live.clear(),
            RolloutView::Transcript(_) | RolloutView::Silent => {}
        }
    }

    /// Prints the final status, and the cause of a rollback.
    fn show_end(&self, env: &EnvName, status: &RolloutStatus, rolled_back: Option<&RolledBackRollout>, out: &mut Out) {
        match self {
            // The transcript has printed everything but the next commands.
            RolloutView::Transcript(_) => status_view::next_steps(status).iter().for_each(|line| out.line(line)),
            RolloutView::Live(_) | RolloutView::Silent => status_view::show(env, status, out),
        }
        if let Some(RolledBackRollout { id, reason, failed }) = rolled_back {
            out.gap();
            out.line(format_args!("rollout {id} was rolled back because {}", text::one_line(reason)));
            failed.iter().for_each(|failed| out.line(format_args!("  {}", text::one_line(&failed.to_string()))));
            if let Some(Hint { command, does }) = failed.first().map(|failed| status_view::node_show_hint(&failed.node))
            {
                out.line(format_args!("next: {command:<35}{does}"));
            }
        }
    }

    /// Prints the current status at the timeout.
    async fn timed_out(
        &mut self,
        session: &Session,
        which: RolloutRef,
        timeout: Option<SignedDuration>,
        terminal: &mut Terminal,
    ) -> Exit {
        self.clear();
        let query = StatusQuery { numbers: true, ..StatusQuery::default() };
        if let Ok(status) = session.client().rollout(&session.env, which, query).await {
            terminal.out.answer(&status, |out| status_view::show(&session.env, &status, out));
        }
        let timeout = timeout.map(labels::duration).unwrap_or_default();
        terminal.notes.note(format_args!("the rollout did not end within {timeout}; it continues"));
        Exit::CannotTell
    }
}

/// The lines for a terminal.
fn live_lines(env: &EnvName, status: &RolloutStatus, width: Option<u16>) -> Vec<String> {
    let mut lines = vec![status_view::headline(env, status), String::new()];
    let rows: Vec<String> = status_view::table(status).lines(width).collect();
    match rows.split_first() {
        Some((heading, body)) if heading.starts_with("WAVE") => {
            lines.push(heading.clone());
            lines.extend(open_waves(status, body));
        }
        // A narrow terminal, with several lines for each row.
        Some(_) | None => lines.extend(rows.into_iter().take(3 * ROWS)),
    }
    for part in [status_view::nodes_in_progress(status), status_view::failed_lines(status), status_view::holds(status)]
    {
        if !part.is_empty() {
            lines.push(String::new());
            lines.extend(part.into_iter().take(ROWS / 2));
        }
    }
    lines
}

/// The rows of the table that fit a screen.
fn open_waves(status: &RolloutStatus, rows: &[String]) -> Vec<String> {
    let first_open =
        status.waves.iter().position(|wave| wave.state.as_ref().is_none_or(|state| state.passed.is_none()));
    let passed: usize = status.waves.iter().take(first_open.unwrap_or(0)).map(|wave| wave.counts.len()).sum();
    // The last passed wave stays visible.
    let skipped = if rows.len() > ROWS { passed.saturating_sub(1).min(rows.len() - ROWS) } else { 0 };
    let mut lines = Vec::new();
    if skipped > 0 {
        lines.push(format!("… {skipped} rows of passed waves"));
    }
    lines.extend(rows.iter().skip(skipped).take(ROWS).cloned());
    let left = rows.len().saturating_sub(skipped + ROWS);
    if left > 0 {
        lines.push(format!("… {left} rows of later waves"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use muster_core::rollout::RolloutId;
    use muster_core::rollout::plan::Prediction;
    use muster_core::rollout::progress::RolloutNodeState;
    use muster_wire::rollout::SlotRow;

    use super::super::test_data::{self, at, env, node, role};
    use super::*;

    fn shown(width: u16) -> String {
        let mut status = test_data::status();
        let minutes = SignedDuration::from_mins;
        status.predicted = Some(Prediction { node: minutes(1), measured: true, total: minutes(9) });
        status.slots = vec![SlotRow {
            node: node("web1"),
            role: role("web"),
            rollout: RolloutId(7),
            version: status.record.to.clone(),
            state: RolloutNodeState::Granted,
            granted: at(0),
            fence: status.revision,
            expires: None,
            deadline: Some(at(900)),
        }];
        anstream::adapter::strip_str(&live_lines(&env(), &status, Some(width)).join("\n")).to_string()
    }

    #[test]
    fn nodes_in_progress_and_the_time_left_are_shown() {
        insta::assert_snapshot!(shown(100), @"
        prod, rollout 7: v2 → v3, running for 30s: wave 1 of 2, 0 of 4 nodes healthy, about 8m left

        WAVE  ROLE  DESIRED  STARTED  APPLYING  HEALTHY  FAILED  DEADLINE  STATE
        1     web   1        1        1         0        0       in 14m    in progress (canary)
        2     lb    1        0        0         0        0       -
              web   2        0        0         0        0       -

        applying: web1
        ");
    }

    #[test]
    fn no_word_is_broken_at_60_columns() {
        insta::assert_snapshot!(shown(60), @"
        prod, rollout 7: v2 → v3, running for 30s: wave 1 of 2, 0 of 4 nodes healthy, about 8m left

        wave 1  role web  desired 1  started 1  applying 1
          healthy 0  failed 0  deadline in 14m
            state in progress (canary)
        wave 2  role lb  desired 1  started 0  applying 0  healthy 0
          failed 0
          role web  desired 2  started 0  applying 0  healthy 0
          failed 0

        applying: web1
        ");
    }
}
