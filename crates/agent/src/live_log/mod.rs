//! Tells the server what the run that goes on says, while it says it.
//!
//! A task of its own, at best effort: the run knows nothing of it and never waits for it, and what does not arrive is in
//! the report. The files of the run are the buffer: nothing is read before it can be sent, so a server that is away, or
//! a run that writes a gigabyte, costs one piece of memory.
//!
//! The files are looked at a few times a second, and only while a run goes on. A pipe in place of the file would wake
//! us, but it holds 64 KiB, and Puppet would stand still whenever we do; and inotify is missing on some file systems
//! that nodes have. A look costs two system calls.

mod source;
mod tail;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use muster_core::report::{CheckResult, Verdict};
use muster_wire::run_log::{LogPiece, PIECE};

use crate::backoff::{self, Backoff};
use crate::live_log::source::Collector;
use crate::live_log::tail::Looked;
use crate::node::Node;
use crate::servers::Servers;
use crate::sync::chain;

pub use source::Source;

/// How soon something new is seen.
const LOOK: Duration = Duration::from_millis(200);
/// How often something is sent, if it is little.
const SEND: Duration = Duration::from_millis(500);
/// The server keeps a piece in memory and answers at once.
const ANSWER: Duration = Duration::from_secs(5);
/// With the server away there is no hurry.
const SEND_AGAIN: Backoff = Backoff { first: Duration::from_millis(500), cap: Duration::from_secs(10) };
/// How often the rest of a run that is over is tried to be sent. The report brings it.
const LAST_TRIES: u32 = 2;

/// Says which run goes on.
#[derive(Clone, Debug, Default)]
pub struct LiveLog {
    current: watch::Sender<Option<Arc<Source>>>,
}

/// A run that goes on. It is over when this is dropped.
#[derive(Debug)]
pub struct LiveRun {
    source: Arc<Source>,
    current: watch::Sender<Option<Arc<Source>>>,
}

impl LiveLog {
    pub fn begin(&self, source: Source) -> LiveRun {
        let source = Arc::new(source);
        self.current.send_replace(Some(Arc::clone(&source)));
        LiveRun { source, current: self.current.clone() }
    }
}

impl LiveRun {
    /// A check has ended.
    pub fn checked(&self, check: &CheckResult) {
        self.source.say(check_in_words(check));
        // Wakes whoever sends it.
        self.current.send_modify(|_| ());
    }
}

impl Drop for LiveRun {
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
pub(crate) fn check_in_words(check: &CheckResult) -> String {
    let word = match check.verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "failed",
    };
    format!("check {} {word} after {} ms: {}", check.name, check.millis, check.message)
}

/// What the task works with.
#[derive(Debug)]
pub struct Streamer {
    node: Arc<Node>,
    servers: Servers,
    current: watch::Receiver<Option<Arc<Source>>>,
    cancel: CancellationToken,
}

impl Streamer {
    pub fn new(node: Arc<Node>, servers: Servers, live: &LiveLog, cancel: CancellationToken) -> Self {
        Self { node, servers, current: live.current.subscribe(), cancel }
    }

    pub async fn run(mut self) {
        let cancel = self.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.work() => {}
        }
    }

    /// Ends when nobody is left who could run anything.
    async fn work(&mut self) {
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

    /// One run, to its end.
    async fn follow(&mut self, source: &Arc<Source>) {
        let (mut collector, mut offset, mut failures) = (Collector::new(source), 0, 0);
        // Whoever asked for the run learns that it has begun, also while it has nothing to say.
        let mut announced = source.asked.is_empty();
        loop {
            // Looked at first: then all that the run has written is there to be collected.
            let is_over = !self.goes_on(source);
            let looked = collector.collect(source, is_over);
            let last = is_over && looked == Looked::AtTheEnd;
            let is_full = looked == Looked::More || collector.text.len() > PIECE / 2;
            let pause = if collector.text.is_empty() && !last && announced {
                LOOK
            } else {
                let text = std::mem::take(&mut collector.text);
                let piece = LogPiece { offset, text, last, asked: source.asked.clone() };
                match self.send(source, &piece).await {
                    Ok(()) if last => return,
                    Ok(()) => {
                        offset += piece.text.len() as u64;
                        (failures, announced) = (0, true);
                        if is_full { Duration::ZERO } else { SEND }
                    }
                    Err(why) => {
                        tracing::debug!(run = %source.run, why, "the server does not know what the run says");
                        // The same once more: it may have arrived, and the server sees that by its place.
                        collector.text = piece.text;
                        failures += 1;
                        if is_over && failures >= LAST_TRIES {
                            return;
                        }
                        SEND_AGAIN.pause(failures, backoff::chance())
                    }
                }
            };
            self.wait(source, pause, failures > 0).await;
        }
    }

    /// Waits until the next look. What a check says is sent at once, unless the server is away; the end of the run always
    /// ends the wait.
    async fn wait(&mut self, source: &Arc<Source>, pause: Duration, server_away: bool) {
        let until = Instant::now() + pause;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                changed = self.current.changed() => {
                    if changed.is_err() || !server_away || !self.goes_on(source) {
                        return;
                    }
                }
            }
        }
    }

    fn goes_on(&self, source: &Arc<Source>) -> bool {
        self.current.borrow().as_ref().is_some_and(|current| Arc::ptr_eq(current, source))
    }

    async fn send(&self, source: &Source, piece: &LogPiece) -> Result<(), String> {
        let client = self.servers.current();
        let sent = client.send_log(&self.node.env, &self.node.name, &source.run, piece);
        match timeout(ANSWER, sent).await {
            Ok(answer) => answer.map_err(|error| chain(&error)),
            Err(_) => Err(format!("no answer within {} s", ANSWER.as_secs())),
        }
    }
}
