//! Receives reports and commits them in groups.
//!
//! [`Reports`] is the entry: a bounded queue with one answer for each report. [`muster_core::report::intake`] decides which
//! reports are committed together and when they are retried; [`IntakeTask`] carries out its IO: logs to files,
//! transactions to the store, answers to agents.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName};
use muster_core::report::Report;
use muster_core::report::group_commit::{CATCH_UP, GroupCommit, GroupIoRequest, GroupIoResult, GroupPart};
use muster_core::report::history::NodeHistory;
use muster_core::report::intake::{
    CommittedStatuses, Intake, IntakeView, NodeDesign, ObservedStatus, ReportAnswer, ReportBatch, ReportRejection,
    ReportingNode, Submission,
};
use muster_core::txn::Revision;
use muster_store::{CommitOutcome, Store, StoreError};
use muster_wire::sync::{ReportAck, ReportResult};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::app::Clock;
use crate::blobs::Blobs;
use crate::blobs::report_packs::{self, ReportPack, ReportPlace};
use crate::metrics::ReportMetrics;
use crate::view::View;

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
    node: ReportingNode,
    report: Report,
    /// The report with its log, as it was sent.
    body: Bytes,
    /// Known when the group of the report is.
    place: Option<ReportPlace>,
    reply: oneshot::Sender<Result<ReportAck, ReportError>>,
}

impl Submission for PendingReport {
    fn node(&self) -> &ReportingNode {
        &self.node
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn log(&self) -> Option<&str> {
        self.place.as_ref().map(|place| place.text.as_str())
    }

    fn place_logs(group: &mut [Self]) {
        let places = report_packs::place(group.iter().map(|pending| &pending.body[..]));
        group.iter_mut().zip(places).for_each(|(pending, place)| pending.place = Some(place));
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
        let node = ReportingNode::new((env, report.node.clone()));
        let pending = PendingReport { node, report, body, place: None, reply };
        self.queue.send(pending).await.map_err(|_| ReportError::Stopping)?;
        answer.await.unwrap_or(Err(ReportError::Stopping))
    }
}

/// The answer of the intake, as the API gives it.
fn api_answer(node: &ReportingNode, answer: ReportAnswer<StoreError>) -> Result<ReportAck, ReportError> {
    let (env, node) = &**node;
    match answer {
        ReportAnswer::Applied { revision, .. } => Ok(ReportAck { taken: ReportResult::Applied, revision }),
        ReportAnswer::AlreadyApplied { revision } => Ok(ReportAck { taken: ReportResult::AlreadyApplied, revision }),
        ReportAnswer::Outdated { revision } => Ok(ReportAck { taken: ReportResult::Outdated, revision }),
        ReportAnswer::Rejected(ReportRejection::UnknownNode) => {
            Err(ReportError::UnknownNode { env: env.clone(), node: node.clone() })
        }
        ReportAnswer::Rejected(ReportRejection::Restoring) => Err(ReportError::Restoring { env: env.clone() }),
        ReportAnswer::Rejected(ReportRejection::Unreadable(source)) => {
            Err(ReportError::Unreadable { node: node.clone(), source })
        }
        ReportAnswer::Contended => Err(ReportError::Contended { node: node.clone() }),
        ReportAnswer::Failed(error) => Err(ReportError::Store(error)),
    }
}

type Group = GroupCommit<PendingReport, StoreError>;

/// Task that receives reports. Each group is a task of its own. The intake itself, with the decisions on the view, is one task,
/// which therefore needs no lock.
#[derive(Debug)]
pub(crate) struct IntakeTask {
    queue: mpsc::Receiver<PendingReport>,
    intake: Intake<PendingReport>,
    host: Arc<IntakeHost>,
    groups: JoinSet<FinishedGroup>,
}

/// The parts of the server that the intake needs.
#[derive(Debug)]
pub(crate) struct IntakeHost {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) view: Arc<View>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) clock: Clock,
    pub(crate) metrics: ReportMetrics,
}

#[derive(Debug)]
struct FinishedGroup {
    nodes: Vec<ReportingNode>,
    committed: CommittedStatuses,
}

impl IntakeTask {
    pub(crate) fn new(queue: mpsc::Receiver<PendingReport>, host: IntakeHost) -> Self {
        Self { queue, intake: Intake::default(), host: Arc::new(host), groups: JoinSet::new() }
    }

    /// Receives reports until all senders are dropped.
    pub(crate) async fn run(mut self) {
        loop {
            while self.intake.has_room()
                && let Ok(pending) = self.queue.try_recv()
            {
                self.intake.submit(pending);
            }
            self.start_groups();
            tokio::select! {
                pending = self.queue.recv(), if self.intake.has_room() => match pending {
                    Some(pending) => self.intake.submit(pending),
                    None => return,
                },
                Some(finished) = self.groups.join_next() => self.group_finished(finished),
            }
        }
    }

    fn start_groups(&mut self) {
        let host = &self.host;
        let mut answer = |pending, answer| host.answer(pending, answer);
        while let Some(ReportBatch { nodes, group }) = self.intake.next_batch(&**host, &mut answer) {
            let host = Arc::clone(host);
            self.groups.spawn(async move { FinishedGroup { committed: host.commit(group).await, nodes } });
        }
    }

    fn group_finished(&mut self, finished: Result<FinishedGroup, JoinError>) {
        let FinishedGroup { nodes, committed } = match finished {
            Ok(finished) => finished,
            // Groups are never cancelled. After a panic the nodes of the group would wait forever: the server stops.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        self.intake.group_finished(&nodes, committed, self.host.revision());
    }
}

impl IntakeView for IntakeHost {
    fn revision(&self) -> Revision {
        self.view.revision().unwrap_or_default()
    }

    fn design(&self, node: &ReportingNode) -> Result<NodeDesign, ReportRejection> {
        NodeDesign::from_fleet(self.view.fleets().get(&node.0), &node.1)
    }

    fn status(&self, node: &ReportingNode, cached: Option<Revision>) -> Option<ObservedStatus> {
        ObservedStatus::from_fleet(self.view.fleets().get(&node.0), &node.1, cached)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl IntakeHost {
    /// Carries out the requests of a group until none is left.
    async fn commit(&self, group: Group) -> CommittedStatuses {
        let mut group = self.store_logs(group).await;
        let size = group.len();
        let Some(first) = group.start() else { return group.finish() };
        let first = self.carry_out(GroupPart::Group, None, first).await;
        let mut requests = FuturesUnordered::new();
        let mut next = Some(first);
        while let Some((part, result)) = next {
            if let GroupIoResult::Committed(_) = result {
                self.metrics.group(if part == GroupPart::Group { size } else { 1 });
            }
            let mut answer = |pending, answer| self.answer(pending, answer);
            for (part, request) in group.resume(part, result, self, &mut answer) {
                let node = group.submission(part).map(|pending| pending.node.clone());
                requests.push(self.carry_out(part, node, request));
            }
            next = requests.next().await;
        }
        group.finish()
    }

    /// Writes the reports of a group, usually one blob, in one blocking task. A report that cannot be stored is answered with
    /// that error, and the rest of the group continues.
    async fn store_logs(&self, mut group: Group) -> Group {
        let blobs = Arc::clone(&self.blobs);
        let stored = tokio::task::spawn_blocking(move || {
            let places: Vec<ReportPlace> = group.submissions().filter_map(|pending| pending.place.clone()).collect();
            let mut packs: Vec<&ReportPack> = Vec::new();
            for place in &places {
                if packs.iter().all(|pack| pack.digest != place.pack.digest) {
                    packs.push(&place.pack);
                }
            }
            let failed: Vec<(&str, Arc<io::Error>)> = packs
                .iter()
                .zip(blobs.keep_packs(&packs))
                .filter_map(|(pack, kept)| Some((pack.digest.as_str(), Arc::new(kept.err()?))))
                .collect();
            group.filter(|pending| {
                let place = pending.place.as_ref();
                let failed = failed.iter().find(|(digest, _)| place.is_some_and(|place| place.pack.digest == *digest));
                let Some((_, error)) = failed else { return Some(pending) };
                // The error of a blob is the answer to each of its reports.
                let error = io::Error::new(error.kind(), Arc::clone(error));
                pending.answer(Err(ReportError::Log(error)));
                None
            });
            group
        });
        // Not cancelled, but it may panic: then the senders get [`ReportError::Stopping`], and send again.
        stored.await.unwrap_or_else(|_| Group::empty())
    }

    async fn carry_out(
        &self,
        part: GroupPart,
        node: Option<ReportingNode>,
        request: GroupIoRequest,
    ) -> (GroupPart, GroupIoResult<StoreError>) {
        let result = match request {
            GroupIoRequest::Commit(txn) => match self.store.commit(txn).await {
                Ok(CommitOutcome::Committed { revision }) => GroupIoResult::Committed(revision),
                Ok(CommitOutcome::Conflict { revision, .. }) => GroupIoResult::Refused(revision),
                Err(error @ StoreError::Unknown { .. }) => GroupIoResult::Unknown(error),
                Err(error @ StoreError::Invalid(_)) => GroupIoResult::Invalid(error),
                Err(error) => GroupIoResult::Failed(error),
            },
            GroupIoRequest::ReadStatus => match node {
                Some(node) => self.read_status(&node).await.unwrap_or_else(GroupIoResult::Failed),
                None => GroupIoResult::CaughtUp,
            },
            GroupIoRequest::CatchUp(revision) => {
                let _ = timeout(CATCH_UP, self.view.reach(revision)).await;
                GroupIoResult::CaughtUp
            }
        };
        (part, result)
    }

    async fn read_status(&self, node: &ReportingNode) -> Result<GroupIoResult<StoreError>, StoreError> {
        let (env, node) = &**node;
        let keys = Keys::new(env);
        // First: each change of the history changes this key too, so a later history makes the commit fail.
        let observed = self.store.get(&keys.observed(node)).await?;
        let list = self.store.get(&keys.run_list(node)).await?;
        let runs = self.store.range(&keys.past_runs(node), None).await?;
        let observed = observed.as_ref().map(|kv| (&kv.value[..], kv.revision));
        let runs = runs.kvs.iter().map(|kv| (kv.key.as_str(), &kv.value[..], kv.revision));
        let history = NodeHistory::from_store(runs, list.as_ref().map(|kv| &kv.value[..]));
        Ok(match ObservedStatus::from_store(observed, history) {
            Ok(status) => GroupIoResult::Status(Box::new(status)),
            Err(error) => GroupIoResult::Unreadable(error),
        })
    }

    fn answer(&self, pending: PendingReport, answer: ReportAnswer<StoreError>) {
        if let ReportAnswer::Applied { exit, .. } = &answer {
            self.metrics.left(*exit);
        }
        let answer = api_answer(&pending.node, answer);
        pending.answer(answer);
    }
}

#[cfg(test)]
mod tests;
