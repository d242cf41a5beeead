//! Sends what is in the outbox, in order, for as long as it takes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use muster_wire::client::ClientError;
use muster_wire::problem::Code;
use muster_wire::sync::Taken;

use crate::backoff::{self, Backoff};
use crate::node::Node;
use crate::opening::Opening;
use crate::outbox::{Outbox, OutboxError, Waiting};
use crate::renewal::Renewal;
use crate::servers::Servers;
use crate::sync::{self, chain};

/// A server that comes back says hello on the stream, and that ends the pause: it can be long.
const RESEND: Backoff = Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(30) };

/// How long the server may take to answer: a little longer than the time between two pings. When it said nothing on the stream
/// either meanwhile it is frozen or cut off, and the stream goes to another server at once; see [`Servers::doubt`].
pub const ANSWER: Duration = Duration::from_secs(sync::PING.as_secs() + 2);

/// What the task works with.
#[derive(Debug)]
pub struct Sender {
    pub node: Arc<Node>,
    pub servers: Servers,
    pub outbox: Outbox,
    pub opening: watch::Receiver<Opening>,
    /// A report was kept, or the server has said hello.
    pub wake: Arc<Notify>,
    /// The incarnation that the server has outlived; the next stream asks for another. See [`crate::renewal`].
    pub renewal: Renewal,
    /// Set when nothing waits, or what waits cannot be sent now.
    pub settled: watch::Sender<bool>,
    /// How long the server may take to answer.
    pub answer: Duration,
    pub cancel: CancellationToken,
}

/// What to do with a report after it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Forget,
    /// It is older than what the server knows: it is sent again under another incarnation.
    Renew,
    /// It is so still: nothing is left to try, and those behind it wait.
    GiveUp,
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
        let mut renewed_for = None;
        loop {
            let sent = match self.outbox.first() {
                Ok(Some(waiting)) => self.send(&waiting, attempt == 0, &mut renewed_for).await,
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

    /// Sends one report. True if it is out of the way. `renewed_for` is the number of the last report for which another
    /// incarnation was asked for.
    async fn send(
        &self,
        waiting: &Waiting,
        first_time: bool,
        renewed_for: &mut Option<u64>,
    ) -> Result<bool, OutboxError> {
        // Without an incarnation there is nothing to send it under; the next hello brings one and wakes this task.
        let Some(incarnation) = self.opening.borrow().incarnation.filter(|_| !self.renewal.is_asked()) else {
            return Ok(false);
        };
        let mut report = waiting.report.clone();
        report.incarnation = incarnation;
        let asked = Instant::now();
        let Ok(answer) = timeout(self.answer, self.servers.current().report(&self.node.env, &report)).await else {
            tracing::warn!(run = %report.run, "the server does not answer; the report is kept, and sent again");
            self.servers.doubt(asked);
            return Ok(false);
        };
        let asked_before = *renewed_for == Some(waiting.seq);
        match &answer {
            Ok(taken) => {
                tracing::debug!(run = %report.run, seq = report.seq, taken = ?taken.taken, "reported");
            }
            Err(error) if first_time => {
                tracing::warn!(run = %report.run, error = chain(error), "a report was not taken; it is kept");
            }
            Err(error) => tracing::debug!(run = %report.run, error = chain(error), "a report was not taken"),
        }
        match fate(answer.as_ref().map(|taken| taken.taken), asked_before) {
            Fate::Forget => self.outbox.remove(waiting.seq).map(|()| true),
            Fate::GiveUp => {
                tracing::warn!(run = %report.run, "the server knows better than this report, also after a new hello; it is dropped");
                self.outbox.remove(waiting.seq).map(|()| true)
            }
            Fate::PutAside => {
                tracing::error!(run = %report.run, "the server will never take this report; it is put aside in outbox/refused");
                self.outbox.put_aside(waiting.seq).map(|()| true)
            }
            Fate::Renew => {
                tracing::warn!(
                    run = %report.run, incarnation,
                    "the server knows newer reports than this agent has sent: its state directory was set back, or another \
                     agent has the same name; asking to begin anew",
                );
                *renewed_for = Some(waiting.seq);
                self.renewal.ask();
                Ok(false)
            }
            Fate::Keep => Ok(false),
        }
    }
}

/// What becomes of a report, by the server's answer. A report that is older than what the server knows is sent again
/// under a new incarnation, once: the server forgets the numbers of the life before, so what this agent says now is new.
pub fn fate(answer: Result<Taken, &ClientError>, renewed: bool) -> Fate {
    let error = match answer {
        Ok(Taken::Applied | Taken::AlreadyApplied) => return Fate::Forget,
        Ok(Taken::Outdated) if renewed => return Fate::GiveUp,
        Ok(Taken::Outdated) => return Fate::Renew,
        Err(error) => error,
    };
    let Some(problem) = error.problem() else { return Fate::Keep };
    match problem.code {
        // It would be said again of the same report for ever, and those behind it would wait for ever.
        Code::InvalidRequest | Code::UnknownVersion | Code::UnknownRun | Code::TooLarge => Fate::PutAside,
        // The design, the environment or the store may still come.
        Code::UnknownEnvironment
        | Code::UnknownNode
        | Code::UnknownRole
        | Code::UnknownDatum
        | Code::UnknownDocument
        | Code::UnknownKind
        | Code::UnknownDesignRevision
        | Code::Destroying
        | Code::PlanOutdated
        | Code::OlderRelease
        | Code::UntrustsCurrent
        | Code::RemovesAll
        | Code::NotAsExpected
        | Code::DesignRefused
        | Code::DesignUnreadable
        | Code::UnknownBundle
        | Code::ReleaseRefused
        | Code::ReleaseTaken
        | Code::ReleaseUnreadable
        | Code::RangeNotSatisfiable
        | Code::Busy
        | Code::NotFound
        | Code::Conflict
        | Code::CannotTell
        | Code::StoreUnavailable
        | Code::StoreFull
        | Code::Internal => Fate::Keep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use crate::testing::{node, report};

    #[tokio::test]
    async fn a_report_that_gets_no_answer_is_kept_and_casts_doubt_on_the_server() {
        // The connection is made, as the kernel does that, and nobody reads what comes.
        let frozen = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (directory, node) = node("web1");
        let outbox = Outbox::new(directory.path().join("state/outbox"));
        outbox.keep(&report(1)).unwrap();
        let url = format!("http://{}", frozen.local_addr().unwrap());
        let servers = Servers::new(&node.env, &node.name, &[url]).unwrap();
        let (mut doubts, begun) = (servers.doubts(), Instant::now());
        let cancel = CancellationToken::new();
        let sender = Sender {
            node: Arc::new(node),
            servers,
            outbox: outbox.clone(),
            opening: watch::channel(Opening { incarnation: Some(1), ..Opening::default() }).1,
            wake: Arc::default(),
            renewal: Renewal::new().0,
            settled: watch::channel(true).0,
            answer: Duration::from_millis(50),
            cancel: cancel.clone(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(sender.run());
        doubts.wait_for(|asked| asked.is_some_and(|asked| asked >= begun)).await.unwrap();
        assert_eq!(outbox.first().unwrap().map(|waiting| waiting.seq), Some(1));
        cancel.cancel();
        while tasks.join_next().await.is_some() {}
    }
}
