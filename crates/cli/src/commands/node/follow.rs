//! The log of a run on the screen, as it comes.

use std::time::Duration;

use muster_core::names::{NodeName, RunId};
use muster_wire::client::{ClientError, LogStream};
use muster_wire::problem::ProblemCode;
use muster_wire::run_log::{LogEnd, LogEvent};
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::args::Format;
use crate::failure::Failure;
use crate::session::{Session, is_interruption};
use crate::terminal::{Terminal, plain};

/// The server says something every 10 s. After two that did not come the connection is dead.
const SILENCE: Duration = Duration::from_secs(25);
/// An agent whose connection was cut, or a server that was started again, is back in a second or two.
const AGAIN: Duration = Duration::from_millis(500);
/// How often in a row nothing new came before it is given up.
const TRIES: u32 = 20;

/// How following a log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Followed {
    /// The run is over.
    ToItsEnd,
    /// Nobody says anything of it any more.
    Lost,
}

/// One line of a log, for programs.
#[derive(Serialize)]
struct LineRow<'a> {
    node: &'a NodeName,
    run: &'a RunId,
    line: &'a str,
}

/// Where lines of one run are printed.
#[derive(Debug)]
pub(super) struct Printer<'a> {
    pub(super) terminal: &'a mut Terminal,
    pub(super) format: Format,
    pub(super) node: &'a NodeName,
    pub(super) run: &'a RunId,
}

impl Printer<'_> {
    pub(super) fn text(&mut self, text: &str) {
        text.lines().for_each(|line| self.line(line));
        self.terminal.out.flush();
    }

    pub(super) fn line(&mut self, line: &str) {
        match self.format {
            Format::Table => self.terminal.out.line(plain::without_controls(line)),
            // One object a line: whoever reads it need not wait for the end.
            Format::Json | Format::Yaml => {
                let row = LineRow { node: self.node, run: self.run, line };
                if let Ok(text) = serde_json::to_string(&row) {
                    self.terminal.out.line(text.replace('\u{7f}', "\\u007f"));
                }
            }
        }
    }
}

/// Prints what comes of a run from a place in its log on, until it is over. A connection that is cut is made again.
pub(super) async fn follow(session: &mut Session, printer: &mut Printer<'_>, mut at: u64) -> Result<Followed, Failure> {
    let mut tries = 0;
    loop {
        let answer = session.client().follow_log(&session.env, printer.node, printer.run, at).await;
        let before = at;
        match answer {
            Ok(stream) => {
                if let Some(followed) = read(stream, printer, &mut at).await {
                    return Ok(followed);
                }
            }
            Err(error) if is_unknown(&error) => return Ok(Followed::Lost),
            Err(error) if is_interruption(&error) => session.find_again()?,
            Err(error) => return session.told(Err(error)),
        }
        tries = if at > before { 0 } else { tries + 1 };
        if tries >= TRIES {
            return Ok(Followed::Lost);
        }
        sleep(AGAIN).await;
    }
}

fn is_unknown(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.code == ProblemCode::UnknownRun)
}

/// Reads one stream to its end; none if the log may go on elsewhere.
async fn read(mut stream: LogStream, printer: &mut Printer<'_>, at: &mut u64) -> Option<Followed> {
    while let Ok(Ok(Some(event))) = timeout(SILENCE, stream.next()).await {
        match event {
            LogEvent::Text { offset, text } => {
                *at = offset + text.len() as u64;
                printer.text(&text);
            }
            LogEvent::Cut { bytes } => {
                *at += bytes;
                printer.line(&format!("… {bytes} bytes are not there any more …"));
            }
            LogEvent::Alive => {}
            LogEvent::End { end: LogEnd::Finished } => return Some(Followed::ToItsEnd),
            LogEvent::End { end: LogEnd::SoFar | LogEnd::AgentGone | LogEnd::ServerStops } => return None,
        }
    }
    None
}
