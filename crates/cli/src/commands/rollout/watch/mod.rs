//! Following a rollout to its end, and into its rollback.

mod live;
mod transcript;

use std::time::Duration;

use jiff::SignedDuration;
use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{FailedNode, RolloutPhase};
use muster_wire::client::{RolloutRef, StatusQuery};
use muster_wire::rollout::RolloutStatus;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::args::Format;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::session::{Session, is_interruption};
use crate::terminal::{Out, Terminal, plain};

use super::status_view;
use super::verdict::{Verdict, judge};

use self::live::Live;
use self::transcript::Transcript;

/// How long the server may keep a question open until there is something new. Ages and deadlines on a screen are brought
/// up to date with each answer.
const OPEN: Duration = Duration::from_secs(5);
/// Between two questions: a fleet of thousands reports many times a second, and nobody reads faster.
const PACE: Duration = Duration::from_millis(200);

/// What led to a rollback.
struct Before {
    id: RolloutId,
    why: String,
    failed: Vec<FailedNode>,
}

/// Shows a rollout until it ends, by itself or because somebody has to look at it; gives the exit code that says how.
/// Whoever stops watching is told that this stops nothing else.
pub(in crate::commands) async fn follow(
    session: &mut Session,
    which: RolloutRef,
    patience: Option<SignedDuration>,
    format: Format,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let mut which = which;
    tokio::select! {
        ended = follow_to_its_end(session, &mut which, patience, format, terminal) => return ended,
        Ok(()) = tokio::signal::ctrl_c() => {}
    }
    let it = match which {
        RolloutRef::Id(id) => format!("rollout {id}"),
        RolloutRef::Active => "the rollout".to_owned(),
    };
    terminal.notes.note(format_args!("{it} goes on; muster rollout status --watch follows it again"));
    Ok(Exit::Interrupted)
}

/// `which` is the one that is being followed.
async fn follow_to_its_end(
    session: &mut Session,
    which: &mut RolloutRef,
    patience: Option<SignedDuration>,
    format: Format,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let deadline = patience.and_then(|long| Duration::try_from(long).ok()).map(|long| Instant::now() + long);
    let mut view = View::new(format, terminal);
    let mut went_back: Option<Before> = None;
    let mut seen = None;
    loop {
        let query = StatusQuery { after: seen, wait: OPEN, numbers: true };
        let asked = ask(session, *which, query, deadline, terminal).await?;
        let Some(status) = asked else {
            return Ok(view.out_of_time(session, *which, patience, terminal).await);
        };
        // From here on it is this one, whatever else is started.
        *which = RolloutRef::Id(status.record.id);
        view.show(session, &status, terminal);
        match judge(&status.record.phase) {
            Verdict::GoesOn => seen = Some(status.revision),
            Verdict::GoesBack(by) => {
                view.say(&format!("rollout {by} takes it back"), &status, terminal);
                went_back.get_or_insert_with(|| before(&status));
                (*which, seen) = (RolloutRef::Id(by), None);
            }
            verdict @ (Verdict::Completed | Verdict::Failed | Verdict::CannotTell) => {
                view.end();
                let status = whole(session, *which, status, format).await?;
                terminal.out.answer(&status, |out| {
                    match view {
                        // All but what to do was said line by line.
                        View::Told(_) => status_view::next(&status).iter().for_each(|line| out.line(line)),
                        View::Live(_) | View::Silent => status_view::show(&session.env, &status, out),
                    }
                    if let Some(before) = &went_back {
                        aftermath(before, out);
                    }
                });
                return Ok(if went_back.is_some() && verdict == Verdict::Completed {
                    Exit::No
                } else {
                    verdict.exit()
                });
            }
        }
        let next = Instant::now() + PACE;
        sleep_until(deadline.map_or(next, |deadline| next.min(deadline))).await;
    }
}

/// Whoever takes the answer as data gets all of it.
async fn whole(
    session: &Session,
    which: RolloutRef,
    status: RolloutStatus,
    format: Format,
) -> Result<RolloutStatus, Failure> {
    match format {
        Format::Table => Ok(status),
        Format::Json | Format::Yaml => {
            session.told(session.client().rollout(&session.env, which, StatusQuery::default()).await)
        }
    }
}

fn before(status: &RolloutStatus) -> Before {
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
    Before { id: status.record.id, why: why.map(status_view::taken_back).unwrap_or_default(), failed }
}

/// What made it necessary to go back, once more at the end, where it is looked for.
fn aftermath(before: &Before, out: &mut Out) {
    out.gap();
    out.line(format_args!("rollout {} was taken back because {}", before.id, plain::one_line(&before.why)));
    before.failed.iter().for_each(|failed| out.line(format_args!("  {}", plain::one_line(&failed.to_string()))));
}

/// Asks until there is an answer; a server that goes away meanwhile is waited for. None when the time is over.
async fn ask(
    session: &mut Session,
    which: RolloutRef,
    query: StatusQuery,
    deadline: Option<Instant>,
    terminal: &mut Terminal,
) -> Result<Option<RolloutStatus>, Failure> {
    let mut away = false;
    loop {
        let question = session.client().rollout(&session.env, which, query);
        let answer = match deadline {
            None => question.await,
            Some(deadline) => match timeout_at(deadline, question).await {
                Ok(answer) => answer,
                Err(_) => return Ok(None),
            },
        };
        match answer {
            Ok(status) => {
                if away {
                    terminal.notes.note("the server answers again");
                }
                return Ok(Some(status));
            }
            Err(error) if is_interruption(&error) => {
                if !std::mem::replace(&mut away, true) {
                    terminal.notes.note(format_args!("{error}; waiting until it is back"));
                }
                // If it is not found, the old address is as good as any.
                let _ = session.find_again();
            }
            Err(error) => return Err(session.server.failure(error)),
        }
        let next = Instant::now() + OPEN / 10;
        match deadline {
            Some(deadline) if deadline <= next => return Ok(None),
            Some(_) | None => sleep_until(next).await,
        }
    }
}

/// Where it is shown: in place on a terminal, line by line in a pipe, not at all for whoever takes the end as data.
enum View {
    Live(Live),
    Told(Transcript),
    Silent,
}

impl View {
    fn new(format: Format, terminal: &Terminal) -> Self {
        match format {
            Format::Json | Format::Yaml => View::Silent,
            Format::Table if terminal.notes.shows_progress() && terminal.out.is_terminal() => View::Live(Live::new()),
            Format::Table => View::Told(Transcript::default()),
        }
    }

    fn show(&mut self, session: &Session, status: &RolloutStatus, terminal: &mut Terminal) {
        match self {
            View::Live(live) => live.show(&session.env, status),
            View::Told(transcript) => {
                transcript.changes(&session.env, status).into_iter().for_each(|line| terminal.out.line(line));
                terminal.out.flush();
            }
            View::Silent => {}
        }
    }

    /// Something that stays to be read.
    fn say(&mut self, text: &str, status: &RolloutStatus, terminal: &mut Terminal) {
        match self {
            View::Live(live) => {
                live.end();
                let why = status_view::failed_lines(status);
                terminal.out.line(format_args!("rollout {} ended, and {text}", status.record.id));
                why.into_iter().for_each(|line| terminal.out.line(line));
                terminal.out.flush();
                *live = Live::new();
            }
            View::Told(transcript) => {
                let failed = transcript.unsaid(status);
                failed.iter().for_each(|line| terminal.out.line(transcript.line(status, line)));
                terminal.out.line(transcript.line(status, text));
                terminal.out.flush();
            }
            View::Silent => {}
        }
    }

    fn end(&mut self) {
        match self {
            View::Live(live) => live.end(),
            View::Told(_) | View::Silent => {}
        }
    }

    /// Nobody can say how it ends: it has not yet.
    async fn out_of_time(
        &mut self,
        session: &Session,
        which: RolloutRef,
        patience: Option<SignedDuration>,
        terminal: &mut Terminal,
    ) -> Exit {
        self.end();
        // As it stands now, if there is still somebody to say it.
        let query = StatusQuery { numbers: true, ..StatusQuery::default() };
        if let Ok(status) = session.client().rollout(&session.env, which, query).await {
            terminal.out.answer(&status, |out| status_view::show(&session.env, &status, out));
        }
        let long = patience.map(super::words::span).unwrap_or_default();
        terminal.notes.note(format_args!("it has not ended within {long}, and goes on without being watched"));
        Exit::CannotTell
    }
}
