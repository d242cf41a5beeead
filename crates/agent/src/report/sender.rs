//! Sends the reports in the outbox, in order.

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
use crate::config::AgentNode;
use crate::queue::io::Input;
use crate::queue::task::QueueMessage;
use crate::report::dispatch::{Dispatch, NextSend, ReportDisposition, ServerAnswer};
use crate::state::outbox::{Outbox, OutboxError};
use crate::sync::handshake::{IncarnationRenewal, SyncState};
use crate::sync::servers::ServerClients;
use crate::sync::{self, error_chain};

/// Time that the server has to answer: a little longer than the ping interval. If the stream is silent for that time too,
/// the server is frozen or unreachable, and the stream fails over at once; see [`ServerClients::report_unanswered`].
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(sync::PING.as_secs() + 2);

/// Task that sends reports.
#[derive(Debug)]
pub struct ReportSender {
    pub node: Arc<AgentNode>,
    pub servers: ServerClients,
    pub outbox: Outbox,
    pub sync_state: watch::Receiver<SyncState>,
    /// A report was stored, or a server has sent hello.
    pub wake: Arc<Notify>,
    /// The generation whose accepted reports the queue must store.
    pub awaited: watch::Receiver<Option<Generation>>,
    pub queue: mpsc::Sender<QueueMessage>,
    /// Requests a new incarnation with the next stream.
    pub renewal: IncarnationRenewal,
    /// Set while the outbox is empty, or its reports cannot be sent now.
    pub settled: watch::Sender<bool>,
    pub answer_timeout: Duration,
    pub cancel: CancellationToken,
}

impl ReportSender {
    pub async fn run(self) {
        let cancel = self.cancel.clone();
        tokio::select! {
            () = cancel.cancelled() => {}
            () = self.send_all() => {}
        }
    }

    async fn send_all(&self) {
        let mut dispatch = Dispatch::default();
        loop {
            match self.send_next(&mut dispatch).await {
                Ok(Attempt::Made) => {}
                Ok(Attempt::OutboxEmpty) => {
                    self.settled.send_replace(true);
                    self.wake.notified().await;
                    continue;
                }
                Err(error) => {
                    dispatch.failed();
                    if dispatch.is_first_failure() {
                        tracing::error!(error = error_chain(&error), "cannot read or write the outbox; retrying");
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

    /// Sends the first report in the outbox, if there is one and it can be sent.
    async fn send_next(&self, dispatch: &mut Dispatch) -> Result<Attempt, OutboxError> {
        let first = self.outbox.first()?.map(|queued| queued.report);
        let incarnation = self.sync_state.borrow().incarnation.filter(|_| !self.renewal.is_requested());
        let report = match dispatch.next(first.as_ref(), incarnation) {
            NextSend::Idle => return Ok(Attempt::OutboxEmpty),
            NextSend::NoIncarnation => return Ok(Attempt::Made),
            NextSend::Send(report) => report,
        };
        let answer = self.send(&report).await;
        let disposition =
            dispatch.answered(report.seq, answer.as_ref().map_or(ServerAnswer::Unknown, ServerAnswer::from));
        match &answer {
            Some(Ok(taken)) => tracing::debug!(run = %report.run, seq = report.seq, ?taken, "reported"),
            Some(Err(error)) if dispatch.is_first_failure() => {
                tracing::warn!(run = %report.run, error = error_chain(error), "the server did not accept a report; it stays in the outbox");
            }
            Some(Err(error)) => {
                tracing::debug!(run = %report.run, error = error_chain(error), "the server did not accept a report");
            }
            None => tracing::warn!(run = %report.run, "the server does not answer; the report is sent again"),
        }
        self.settle(&report, disposition, incarnation).await?;
        Ok(Attempt::Made)
    }

    async fn settle(
        &self,
        report: &Report,
        disposition: ReportDisposition,
        incarnation: Option<u64>,
    ) -> Result<(), OutboxError> {
        match disposition {
            ReportDisposition::Remove => {
                self.confirm(report).await;
                self.outbox.remove(report.seq)
            }
            ReportDisposition::Drop => {
                tracing::warn!(run = %report.run, "the report is outdated also under a new incarnation; it is dropped");
                self.outbox.remove(report.seq)
            }
            ReportDisposition::Refuse => {
                tracing::error!(run = %report.run, "no server will accept this report; moved to outbox/refused");
                self.outbox.move_to_refused(report.seq)
            }
            ReportDisposition::RenewIncarnation => {
                tracing::warn!(
                    run = %report.run, incarnation,
                    "the server has newer reports than this agent has sent: the state directory was restored, or another \
                     agent has the same name; requesting a new incarnation",
                );
                self.renewal.request();
                Ok(())
            }
            ReportDisposition::Retry => Ok(()),
        }
    }

    /// Notifies the queue that an awaited report was accepted, and waits until that is stored. If the report were
    /// removed first, an agent that is killed in between would lose this fact. A report that is sent twice is accepted
    /// twice.
    async fn confirm(&self, report: &Report) {
        if *self.awaited.borrow() != Some(report.generation) {
            return;
        }
        let (message, acknowledged) = QueueMessage::with_ack(Input::ReportAccepted(report.into()));
        // There is no answer only if the agent shuts down.
        if self.queue.send(message).await.is_err() || acknowledged.await.is_err() {
            self.cancel.cancelled().await;
        }
    }

    /// Sends one report. `None` on a timeout, which is passed on to the stream.
    async fn send(&self, report: &Report) -> Option<Result<ReportResult, ClientError>> {
        let sent = Instant::now();
        match timeout(self.answer_timeout, self.servers.current().report(&self.node.env, report)).await {
            Ok(answer) => Some(answer.map(|taken| taken.taken)),
            Err(_) => {
                self.servers.report_unanswered(sent);
                None
            }
        }
    }
}

enum Attempt {
    OutboxEmpty,
    Made,
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use crate::testing::{node, report};
    use muster_wire::client::Credentials;

    #[tokio::test]
    async fn unanswered_report_is_kept_and_passed_on_to_the_stream() {
        // The kernel accepts the connection, and no server reads from it.
        let frozen = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (directory, node) = node("web1");
        let outbox = Outbox::new(directory.path().join("state/outbox"));
        outbox.store(&report(1)).unwrap();
        let url = format!("http://{}", frozen.local_addr().unwrap());
        let servers = ServerClients::new(&node.env, &node.name, &[url], &Credentials::default()).unwrap();
        let (mut unanswered, begun) = (servers.unanswered(), Instant::now());
        let cancel = CancellationToken::new();
        let sender = ReportSender {
            node: Arc::new(node),
            servers,
            outbox: outbox.clone(),
            sync_state: watch::channel(SyncState { incarnation: Some(1), ..SyncState::default() }).1,
            wake: Arc::default(),
            awaited: watch::channel(None).1,
            queue: mpsc::channel(1).0,
            renewal: IncarnationRenewal::new().0,
            settled: watch::channel(true).0,
            answer_timeout: Duration::from_millis(50),
            cancel: cancel.clone(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(sender.run());
        unanswered.wait_for(|sent| sent.is_some_and(|sent| sent >= begun)).await.unwrap();
        assert_eq!(outbox.first().unwrap().map(|queued| queued.seq), Some(1));
        cancel.cancel();
        while tasks.join_next().await.is_some() {}
    }
}
