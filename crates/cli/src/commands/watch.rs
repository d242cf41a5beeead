//! `--watch` of `status` and `node list`: shows an answer again whenever the server reports a change, until Ctrl-C.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_wire::client::ClientError;
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::args::{Globals, OutputFormat};
use crate::connect::{Session, is_retryable};
use crate::failure::{Exit, Failure};
use crate::output::{LiveLines, Out, Terminal};
use crate::process::Signals;

/// Time that the server holds a request until something changes. Each answer also updates the ages on the screen.
const HOLD: Duration = Duration::from_secs(5);
/// Pause between two requests: a fleet of thousands reports many times a second, faster than an operator can read.
const PAUSE: Duration = Duration::from_millis(200);
/// Pause between two requests to a server that does not answer.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Lines of the screen that are left free: the prompt, and the line that names the rest.
const MARGIN: usize = 2;
/// Lines of a terminal that does not report its size.
const DEFAULT_HEIGHT: usize = 24;

/// Forms of an answer that is watched.
pub(super) trait WatchedAnswer: Serialize {
    /// The form for people.
    fn show(&self, now: Timestamp, out: &mut Out);

    /// The lines for a pipe: those that have changed since the last call.
    fn changes(&self, transcript: &mut Self::Transcript, now: Timestamp) -> Vec<String>;

    /// The lines that were printed.
    type Transcript;
}

/// Requests an answer after each change, and shows it. Ctrl-C ends it with exit code 0.
pub(super) async fn watch<T: WatchedAnswer>(
    mut session: Session,
    globals: &Globals,
    terminal: &mut Terminal,
    transcript: T::Transcript,
    request: impl AsyncFn(&Session) -> Result<T, ClientError>,
) -> Result<Exit, Failure> {
    let signals = Signals::new();
    let mut signals =
        signals.map_err(|error| Failure::failed(anyhow::Error::new(error).context("cannot listen for signals")))?;
    let (began, started) = (terminal.now, Instant::now());
    let mut view = WatchView::<T>::new(globals.output, terminal, transcript);
    let mut cursor: Option<String> = None;
    let mut unreachable = false;
    loop {
        let next = async {
            // Before the answer: a change after it is reported to the next request.
            let change = session.client().wait_for_change(&session.env, cursor.as_deref(), HOLD).await?;
            Ok::<_, ClientError>((change.cursor, request(&session).await?))
        };
        let answer = tokio::select! {
            answer = next => answer,
            () = signals.recv() => break,
        };
        let pause = match answer {
            Ok((newer, answer)) => {
                if std::mem::take(&mut unreachable) {
                    terminal.notes.note("the server is reachable again");
                }
                let elapsed = SignedDuration::try_from(started.elapsed()).unwrap_or_default();
                view.show(answer, began.saturating_add(elapsed).unwrap_or(began), terminal);
                cursor = Some(newer);
                PAUSE
            }
            // At first the address is most likely wrong. Later an outage is waited out.
            Err(error) if cursor.is_some() && is_retryable(&error) => {
                if !std::mem::replace(&mut unreachable, true) {
                    terminal.notes.note(format_args!("{error}; waiting for the server"));
                }
                // Without an announcement the old address is retried.
                let _ = session.rediscover();
                cursor = Some(String::new());
                RETRY_PAUSE
            }
            Err(error) => return Err(session.server.failure(error)),
        };
        if terminal.out.is_closed() {
            break;
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = signals.recv() => break,
        }
    }
    view.end(terminal);
    Ok(Exit::Yes)
}

/// The answer on the screen: redrawn on a terminal, and one line or document per change elsewhere.
enum WatchView<T: WatchedAnswer> {
    Live { live: LiveLines, screen: Vec<String> },
    Transcript(T::Transcript),
    Documents { last: Option<Value> },
}

impl<T: WatchedAnswer> WatchView<T> {
    fn new(format: OutputFormat, terminal: &Terminal, transcript: T::Transcript) -> Self {
        match format {
            OutputFormat::Json | OutputFormat::Yaml => WatchView::Documents { last: None },
            OutputFormat::Table if terminal.notes.shows_progress() && terminal.out.is_terminal() => {
                WatchView::Live { live: LiveLines::new(), screen: Vec::new() }
            }
            OutputFormat::Table => WatchView::Transcript(transcript),
        }
    }

    fn show(&mut self, answer: T, now: Timestamp, terminal: &mut Terminal) {
        match self {
            WatchView::Live { live, screen } => {
                *screen = Out::lines(terminal.out.width(), |out| answer.show(now, out));
                live.show(cut(screen, screen_height()));
            }
            WatchView::Transcript(transcript) => {
                answer.changes(transcript, now).into_iter().for_each(|line| terminal.out.line(line));
                terminal.out.flush();
            }
            WatchView::Documents { last } => {
                let mut value = serde_json::to_value(&answer).unwrap_or_default();
                // Other changes of the store increase it, too.
                value.as_object_mut().map(|fields| fields.remove("revision"));
                if last.as_ref() != Some(&value) {
                    terminal.out.answer(&answer, |_| {});
                    *last = Some(value);
                }
            }
        }
    }

    /// Leaves the last screen on the terminal.
    fn end(self, terminal: &mut Terminal) {
        if let WatchView::Live { live, screen } = self {
            live.clear();
            screen.iter().for_each(|line| terminal.out.line(line));
        }
    }
}

fn screen_height() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    size.map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0).unwrap_or(DEFAULT_HEIGHT)
}

/// The lines that fit a screen.
fn cut(lines: &[String], height: usize) -> Vec<String> {
    let fit = height.saturating_sub(MARGIN).max(1);
    match lines.len().checked_sub(fit) {
        None | Some(0) => lines.to_vec(),
        Some(more) => {
            let last = format!("… {} more lines", more + 1);
            lines.iter().take(fit - 1).cloned().chain([last]).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn screen_is_cut_to_its_height() {
        let lines: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).into();
        assert_eq!(cut(&lines, 6), ["a", "b", "c", "d"]);
        assert_eq!(cut(&lines, 5), ["a", "b", "… 2 more lines"]);
        assert_eq!(cut(&lines, 0), ["… 4 more lines"]);
    }
}
