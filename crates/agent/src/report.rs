//! Sends what is in the outbox, in order, for as long as it takes. [`dispatch`] decides which, when, and what an answer means.

pub mod dispatch;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use muster_core::report::Report;
use muster_core::txn::Generation;
use muster_wire::client::ClientError;
use muster_wire::sync::ReportResult;

use crate::backoff;
use crate::node::Node;
use crate::opening::Opening;
use crate::outbox::{Outbox, OutboxError};
use crate::queue::input::Input;
use crate::queue::task::Message;
use crate::renewal::Renewal;
use crate::report::dispatch::{Answer, Dispatch, Fate, Next};
use crate::servers::Servers;
use crate::sync::{self, chain};

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
    /// The generation of which the queue is to know when a report is taken.
    pub awaited: watch::Receiver<Option<Generation>>,
    pub queue: mpsc::Sender<Message>,
    /// The incarnation that the server has outlived; the next stream asks for another. See [`crate::renewal`].
    pub renewal: Renewal,
    /// Set when nothing waits, or what waits cannot be sent now.
    pub settled: watch::Sender<bool>,
    /// How long the server may take to answer.
    pub answer: Duration,
    pub cancel: CancellationToken,
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
        let mut dispatch = Dispatch::default();
        loop {
            match self.turn(&mut dispatch).await {
                Ok(Turn::Over) => {}
                Ok(Turn::NothingWaits) => {
                    self.settled.send_replace(true);
                    self.wake.notified().await;
                    continue;
                }
                Err(error) => {
                    dispatch.failed();
                    if dispatch.is_first() {
                        tracing::error!(error = chain(&error), "the outbox cannot be read or written; trying again");
                    }
                }
            }
            if let Some(pause) = dispatch.pause(backoff::chance()) {
                self.settled.send_replace(true);
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.wake.notified() => {}
                }
            }
        }
    }

    /// Sends the first report that waits, if there is one and it can be sent.
    async fn turn(&self, dispatch: &mut Dispatch) -> Result<Turn, OutboxError> {
        let first = self.outbox.first()?.map(|waiting| waiting.report);
        let incarnation = self.opening.borrow().incarnation.filter(|_| !self.renewal.is_asked());
        let report = match dispatch.next(first.as_ref(), incarnation) {
            Next::Sleep => return Ok(Turn::NothingWaits),
            Next::Hold => return Ok(Turn::Over),
            Next::Send(report) => report,
        };
        let answer = self.ask(&report).await;
        let fate = dispatch.answered(report.seq, answer.as_ref().map_or(Answer::Unknown, Answer::from));
        match &answer {
            Some(Ok(taken)) => tracing::debug!(run = %report.run, seq = report.seq, ?taken, "reported"),
            Some(Err(error)) if dispatch.is_first() => {
                tracing::warn!(run = %report.run, error = chain(error), "a report was not taken; it is kept");
            }
            Some(Err(error)) => tracing::debug!(run = %report.run, error = chain(error), "a report was not taken"),
            None => tracing::warn!(run = %report.run, "the server does not answer; the report is kept, and sent again"),
        }
        match fate {
            Fate::Forget => {
                self.confirm(&report).await;
                self.outbox.remove(report.seq)?;
            }
            Fate::GiveUp => {
                tracing::warn!(run = %report.run, "the server knows better than this report, also after a new hello; it is dropped");
                self.outbox.remove(report.seq)?;
            }
            Fate::PutAside => {
                tracing::error!(run = %report.run, "the server will never take this report; it is put aside in outbox/refused");
                self.outbox.put_aside(report.seq)?;
            }
            Fate::Renew => {
                tracing::warn!(
                    run = %report.run, incarnation,
                    "the server knows newer reports than this agent has sent: its state directory was set back, or another \
                     agent has the same name; asking to begin anew",
                );
                self.renewal.ask();
            }
            Fate::Keep => {}
        }
        Ok(Turn::Over)
    }

    /// A report that is forgotten before the queue knows that it was taken would be missed for ever if the agent was killed at
    /// that moment; one that is sent again is taken again.
    async fn confirm(&self, report: &Report) {
        if *self.awaited.borrow() != Some(report.generation) {
            return;
        }
        let (message, written) = Message::awaited(Input::Taken(report.into()));
        // Nobody answers only if the agent is to end.
        if self.queue.send(message).await.is_err() || written.await.is_err() {
            self.cancel.cancelled().await;
        }
    }

    /// None if no answer came in time: that casts doubt on the server.
    async fn ask(&self, report: &Report) -> Option<Result<ReportResult, ClientError>> {
        let asked = Instant::now();
        match timeout(self.answer, self.servers.current().report(&self.node.env, report)).await {
            Ok(answer) => Some(answer.map(|taken| taken.taken)),
            Err(_) => {
                self.servers.doubt(asked);
                None
            }
        }
    }
}

enum Turn {
    NothingWaits,
    Over,
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
            awaited: watch::channel(None).1,
            queue: mpsc::channel(1).0,
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
