//! Sends what is in the outbox, in order, for as long as it takes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use muster_wire::client::ClientError;
use muster_wire::problem::Code;
use muster_wire::sync::Taken;

use crate::backoff::{self, Backoff};
use crate::node::Node;
use crate::opening::Opening;
use crate::outbox::{Outbox, OutboxError, Waiting};
use crate::servers::Servers;
use crate::sync::chain;

/// A server that comes back says hello on the stream, and that ends the pause: it can be long.
const RESEND: Backoff = Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(30) };

/// What the task works with.
#[derive(Debug)]
pub struct Sender {
    pub node: Arc<Node>,
    pub servers: Servers,
    pub outbox: Outbox,
    pub opening: watch::Receiver<Opening>,
    /// A report was kept, or the server has said hello.
    pub wake: Arc<Notify>,
    /// Asks for a new stream.
    pub reopen: Arc<Notify>,
    /// Set when nothing waits, or what waits cannot be sent now.
    pub settled: watch::Sender<bool>,
    pub cancel: CancellationToken,
}

/// What to do with a report after it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Forget,
    /// The server did not take it, and never will.
    PutAside,
    /// It is sent again later.
    Keep,
}

impl Sender {
    pub async fn run(self) {
        let cancel = self.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.work() => {}
        }
    }

    async fn work(&self) {
        let mut attempt = 0;
        loop {
            let sent = match self.outbox.first() {
                Ok(Some(waiting)) => self.send(&waiting, attempt == 0).await,
                Ok(None) => {
                    attempt = 0;
                    self.settled.send_replace(true);
                    self.wake.notified().await;
                    continue;
                }
                Err(error) => Err(error),
            };
            match sent {
                Ok(true) => attempt = 0,
                Ok(false) => attempt += 1,
                Err(error) => {
                    attempt += 1;
                    if attempt == 1 {
                        tracing::error!(error = chain(&error), "the outbox cannot be read or written; trying again");
                    }
                }
            }
            if attempt > 0 {
                self.settled.send_replace(true);
                tokio::select! {
                    () = tokio::time::sleep(RESEND.pause(attempt, backoff::chance())) => {}
                    () = self.wake.notified() => {}
                }
            }
        }
    }

    /// Sends one report. True if it is out of the way.
    async fn send(&self, waiting: &Waiting, first_time: bool) -> Result<bool, OutboxError> {
        // Without an incarnation there is nothing to send it under; the first hello brings one and wakes this task.
        let Some(incarnation) = self.opening.borrow().incarnation else { return Ok(false) };
        let mut report = waiting.report.clone();
        report.incarnation = incarnation;
        let answer = self.servers.current().report(&self.node.env, &report).await;
        match &answer {
            Ok(taken) if taken.taken == Taken::Outdated => {
                tracing::warn!(run = %report.run, "the server knows a newer life of this agent; asking who we are");
                self.reopen.notify_one();
            }
            Ok(_) => tracing::debug!(run = %report.run, seq = report.seq, "reported"),
            Err(error) if first_time => {
                tracing::warn!(run = %report.run, error = chain(error), "a report was not taken; it is kept");
            }
            Err(error) => tracing::debug!(run = %report.run, error = chain(error), "a report was not taken"),
        }
        match fate(answer.as_ref().err()) {
            Fate::Forget => self.outbox.remove(waiting.seq).map(|()| true),
            Fate::PutAside => {
                tracing::error!(run = %report.run, "the server will never take this report; it is put aside in outbox/refused");
                self.outbox.put_aside(waiting.seq).map(|()| true)
            }
            Fate::Keep => Ok(false),
        }
    }
}

/// What becomes of a report, by the server's answer.
pub fn fate(error: Option<&ClientError>) -> Fate {
    let Some(error) = error else { return Fate::Forget };
    let Some(problem) = error.problem() else { return Fate::Keep };
    match problem.code {
        // It would be said again of the same report for ever, and those behind it would wait for ever.
        Code::InvalidRequest | Code::UnknownVersion | Code::UnknownRun => Fate::PutAside,
        // The design, the environment or the store may still come.
        Code::UnknownEnvironment
        | Code::UnknownNode
        | Code::NotFound
        | Code::Conflict
        | Code::CannotTell
        | Code::StoreUnavailable
        | Code::StoreFull
        | Code::Internal => Fate::Keep,
    }
}
