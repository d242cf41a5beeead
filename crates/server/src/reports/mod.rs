//! Receives reports and commits them in groups.
//!
//! [`Reports`] is the entry: a bounded queue with one answer for each report. [`muster_core::report::intake`] decides which
//! reports are committed together and when they are retried; [`intake_task`] carries out its IO.

mod intake_task;

use std::io;
use std::time::Instant;

use bytes::Bytes;
use muster_core::names::{EnvName, NodeName};
use muster_core::report::Report;
use muster_core::report::intake::{NodeKey, Rejection, ReportAnswer, Submission};
use muster_store::StoreError;
use muster_wire::sync::{ReportAck, ReportResult};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::blobs::Blobs;
use crate::metrics::ReportMetrics;

pub(crate) use intake_task::{IntakeHost, IntakeTask};

/// Reports that may wait in the queue. Further requests wait until there is room.
const QUEUE: usize = 1024;

#[derive(Debug, Error)]
pub enum ReportError {
    #[error("{node} is not in the design of {env}")]
    UnknownNode { env: EnvName, node: NodeName },
    #[error("the report cannot be committed")]
    Store(#[source] StoreError),
    #[error("the report is refused: other servers change the status of {node} at the same time; send it again")]
    Contended { node: NodeName },
    #[error("the status of {node} in the store cannot be read")]
    Unreadable {
        node: NodeName,
        #[source]
        source: serde_json::Error,
    },
    #[error("{env} is being restored from a backup; send the report again when that is done")]
    Restoring { env: EnvName },
    #[error("the log of the report cannot be stored")]
    Log(#[source] io::Error),
    #[error("the server is stopping")]
    Stopping,
}

/// Entry for reports.
#[derive(Clone, Debug)]
pub struct Reports {
    queue: mpsc::Sender<PendingReport>,
    metrics: ReportMetrics,
}

/// A report whose sender waits for the answer.
#[derive(Debug)]
pub(crate) struct PendingReport {
    node: NodeKey,
    report: Report,
    /// The report with its log, as it was sent.
    body: Bytes,
    /// Digest of the body, and name of its blob.
    log: String,
    reply: oneshot::Sender<Result<ReportAck, ReportError>>,
}

impl Submission for PendingReport {
    fn node(&self) -> &NodeKey {
        &self.node
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn log(&self) -> Option<&str> {
        Some(&self.log)
    }
}

impl PendingReport {
    /// The request may have been cancelled. The commit is valid all the same.
    fn answer(self, answer: Result<ReportAck, ReportError>) {
        let _ = self.reply.send(answer);
    }
}

impl Reports {
    /// The entry, and the queue that [`IntakeTask`] reads.
    pub(crate) fn channel(metrics: ReportMetrics) -> (Self, mpsc::Receiver<PendingReport>) {
        let (queue, pending) = mpsc::channel(QUEUE);
        (Self { queue, metrics }, pending)
    }

    /// Reports in the queue, and its capacity.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.queue.max_capacity() - self.queue.capacity(), self.queue.max_capacity())
    }

    /// Commits a report, and stores its body. When this returns, the effect of the report is durable.
    pub async fn submit(&self, env: EnvName, report: Report, body: Bytes) -> Result<ReportAck, ReportError> {
        let begin = Instant::now();
        let answer = self.commit(env, report, body).await;
        self.metrics.answered(&answer, begin.elapsed());
        answer
    }

    async fn commit(&self, env: EnvName, report: Report, body: Bytes) -> Result<ReportAck, ReportError> {
        let (reply, answer) = oneshot::channel();
        let node = NodeKey::new((env, report.node.clone()));
        let pending = PendingReport { node, report, log: Blobs::digest(&body), body, reply };
        self.queue.send(pending).await.map_err(|_| ReportError::Stopping)?;
        answer.await.unwrap_or(Err(ReportError::Stopping))
    }
}

/// The answer of the intake, as the API gives it.
fn api_answer(node: &NodeKey, answer: ReportAnswer<StoreError>) -> Result<ReportAck, ReportError> {
    let (env, node) = &**node;
    match answer {
        ReportAnswer::Applied { revision, .. } => Ok(ReportAck { taken: ReportResult::Applied, revision }),
        ReportAnswer::AlreadyApplied { revision } => Ok(ReportAck { taken: ReportResult::AlreadyApplied, revision }),
        ReportAnswer::Outdated { revision } => Ok(ReportAck { taken: ReportResult::Outdated, revision }),
        ReportAnswer::Rejected(Rejection::UnknownNode) => {
            Err(ReportError::UnknownNode { env: env.clone(), node: node.clone() })
        }
        ReportAnswer::Rejected(Rejection::Restoring) => Err(ReportError::Restoring { env: env.clone() }),
        ReportAnswer::Rejected(Rejection::Unreadable(source)) => {
            Err(ReportError::Unreadable { node: node.clone(), source })
        }
        ReportAnswer::Contended => Err(ReportError::Contended { node: node.clone() }),
        ReportAnswer::Failed(error) => Err(ReportError::Store(error)),
    }
}
