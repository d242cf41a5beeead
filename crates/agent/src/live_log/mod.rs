//! Streams the log of a run to the server while it runs.
//!
//! The task is best effort. The run never waits for it, and the report contains what did not arrive. The files of the run
//! are the buffer: nothing is read before it can be sent, so an unreachable server, or a run that writes a gigabyte, costs
//! one piece of memory.
//!
//! The files are polled five times a second, and only during a run. A pipe would wake the task, but it holds 64 KiB and
//! would block Puppet whenever this task is slow. inotify is missing on some file systems. A poll costs two system calls.

mod source;
mod tail;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use muster_core::report::{CheckResult, Verdict};
use muster_wire::runs::{LogPiece, PIECE};

use crate::backoff::{self, RetryBackoff};
use crate::config::AgentNode;
use crate::live_log::source::Collector;
use crate::live_log::tail::ReadProgress;
use crate::sync::error_chain;
use crate::sync::servers::ServerClients;

pub use source::LogSource;

/// Poll interval.
const POLL: Duration = Duration::from_millis(200);
/// Interval between two small pieces.
const SEND_INTERVAL: Duration = Duration::from_millis(500);
/// The server keeps a piece in memory and answers at once.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Backoff while the server is unreachable.
const RESEND: RetryBackoff = RetryBackoff { first: Duration::from_millis(500), cap: Duration::from_secs(10) };
/// Attempts to send the rest of a finished run. The report contains it too.
const LAST_ATTEMPTS: u32 = 2;

/// Handle that sets the run in progress for the streamer.
#[derive(Clone, Debug, Default)]
pub struct LiveLog {
    current: watch::Sender<Option<Arc<LogSource>>>,
}

/// A run in progress. It ends when this is dropped.
#[derive(Debug)]
pub struct RunLogHandle {
    source: Arc<LogSource>,
    current: watch::Sender<Option<Arc<LogSource>>>,
}

impl LiveLog {
    pub fn begin(&self, source: LogSource) -> RunLogHandle {
        let source = Arc::new(source);
        self.current.send_replace(Some(Arc::clone(&source)));
        RunLogHandle { source, current: self.current.clone() }
    }
}

impl RunLogHandle {
    /// Adds the result of a check.
    pub fn checked(&self, check: &CheckResult) {
        self.source.push_line(check_line(check));
        // Wakes the streamer.
        self.current.send_modify(|_| ());
    }
}

impl Drop for RunLogHandle {
    fn drop(&mut self) {
        self.current.send_if_modified(|current| {
            let is_this = current.as_ref().is_some_and(|source| Arc::ptr_eq(source, &self.source));
            if is_this {
                *current = None;
            }
            is_this
        });
    }
}

/// `check listens passed after 12 ms: connected`
pub(crate) fn check_line(check: &CheckResult) -> String {
    let word = match check.verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "failed",
    };
    format!("check {} {word} after {} ms: {}", check.name, check.millis, check.message)
}

/// Task that streams the log.
#[derive(Debug)]
pub struct Streamer {
    node: Arc<AgentNode>,
    servers: ServerClients,
    current: watch::Receiver<Option<Arc<LogSource>>>,
    cancel: CancellationToken,
}

impl Streamer {
    pub fn new(node: Arc<AgentNode>, servers: ServerClients, live: &LiveLog, cancel: CancellationToken) -> Self {
        Self { node, servers, current: live.current.subscribe(), cancel }
    }

    pub async fn run(mut self) {
        let cancel = self.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.stream_runs() => {}
        }
    }

    /// Ends when the run task has ended.
    async fn stream_runs(&mut self) {
        loop {
            let source = match self.current.wait_for(Option::is_some).await {
                Ok(current) => current.clone(),
                Err(_) => return,
            };
            if let Some(source) = source {
                self.follow(&source).await;
            }
        }
    }

    /// Streams one run to its end.
    async fn follow(&mut self, source: &Arc<LogSource>) {
        let (mut collector, mut offset, mut failures) = (Collector::new(source), 0, 0);
        // A requested run is announced at once, also without output.
        let mut announced = source.requests.is_empty();
        loop {
            // Read first: then the files contain all that the run has written.
            let is_over = !self.in_progress(source);
            let progress = collector.collect(source, is_over);
            let last = is_over && progress == ReadProgress::AtEnd;
            let is_full = progress == ReadProgress::More || collector.text.len() > PIECE / 2;
            let pause = if collector.text.is_empty() && !last && announced {
                POLL
            } else {
                let text = std::mem::take(&mut collector.text);
                let piece = LogPiece { offset, text, last, asked: source.requests.clone() };
                match self.send(source, &piece).await {
                    Ok(()) if last => return,
                    Ok(()) => {
                        offset += piece.text.len() as u64;
                        (failures, announced) = (0, true);
                        if is_full { Duration::ZERO } else { SEND_INTERVAL }
                    }
                    Err(error) => {
                        tracing::debug!(run = %source.run, error, "cannot send a piece of the log");
                        // Send the same again. If it has arrived, the server recognises it by its offset.
                        collector.text = piece.text;
                        failures += 1;
                        if is_over && failures >= LAST_ATTEMPTS {
                            return;
                        }
                        RESEND.pause(failures, backoff::chance())
                    }
                }
            };
            self.wait(source, pause, failures > 0).await;
        }
    }

    /// Waits until the next poll. The result of a check is sent at once, unless the server is unreachable. The end of the
    /// run always ends the wait.
    async fn wait(&mut self, source: &Arc<LogSource>, pause: Duration, unreachable: bool) {
        let until = Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                changed = self.current.changed() => {
                    if changed.is_err() || !unreachable || !self.in_progress(source) {
                        return;
                    }
                }
            }
        }
    }

    fn in_progress(&self, source: &Arc<LogSource>) -> bool {
        self.current.borrow().as_ref().is_some_and(|current| Arc::ptr_eq(current, source))
    }

    async fn send(&self, source: &LogSource, piece: &LogPiece) -> Result<(), String> {
        let client = self.servers.current();
        let sent = client.send_log(&self.node.env, &self.node.name, &source.run, piece);
        match timeout(ANSWER_TIMEOUT, sent).await {
            Ok(answer) => answer.map_err(|error| error_chain(&error)),
            Err(_) => Err(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())),
        }
    }
}
