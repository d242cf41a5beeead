//! Prints the log of a run while it is written.

use std::time::Duration;

use muster_core::names::{NodeName, RunId};
use muster_wire::client::{ClientError, LogStream};
use muster_wire::problem::ProblemCode;
use muster_wire::runs::{LogEnd, LogEvent};
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::args::Format;
use crate::connect::{Session, is_retryable};
use crate::failure::Failure;
use crate::output::{Terminal, text};

/// The server sends a keep-alive every 10 s. After two missing ones the connection is dead.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(25);
/// Pause before a reconnect. A reconnecting agent or a restarted server is back within two seconds.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// Consecutive reconnects without new text before giving up.
const RECONNECTS: u32 = 20;

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
    line: &'a str,
}

/// Prints the lines of one run.
#[derive(Debug)]
pub(super) struct LogPrinter<'a> {
    pub(super) terminal: &'a mut Terminal,
    pub(super) format: Format,
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
            Format::Table => self.terminal.out.line(text::without_controls(line)),
            // One object per line, for readers that process the stream.
            Format::Json | Format::Yaml => {
                let row = LineRow { node: self.node, run: self.run, line };
                if let Ok(text) = serde_json::to_string(&row) {
                    self.terminal.out.line(text.replace('\u{7f}', "\\u007f"));
                }
            }
        }
    }
}

/// Prints the log of a run from an offset until the run has finished. Reconnects if the connection is lost.
pub(super) async fn follow(
    session: &mut Session,
    printer: &mut LogPrinter<'_>,
    mut at: u64,
) -> Result<FollowEnd, Failure> {
    let mut reconnects = 0;
    loop {
        let answer = session.client().follow_log(&session.env, printer.node, printer.run, at).await;
        let before = at;
        match answer {
            Ok(stream) => {
                if let Some(end) = read(stream, printer, &mut at).await {
                    return Ok(end);
                }
            }
            Err(error) if is_unknown(&error) => return Ok(FollowEnd::Lost),
            Err(error) if is_retryable(&error) => session.rediscover()?,
            Err(error) => return session.map_err(Err(error)),
        }
        reconnects = if at > before { 0 } else { reconnects + 1 };
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
