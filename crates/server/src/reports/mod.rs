//! Commits reports, in groups.
//!
//! The logs of a group are written to files together, and then it becomes one transaction. When that is refused, because
//! one of its nodes moved meanwhile, its reports are committed one by one with what the store says now.

pub(crate) mod intake;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName};
use muster_core::node::record::NodeRecord;
use muster_core::report::Report;
use muster_core::report::record::{ObservedRecord, RunHistory};
use muster_core::report::status_move::{self, AppliedMove, MoveInput, StatusMove};
use muster_core::txn::{Revision, Txn};
use muster_store::{CommitOutcome, Store, StoreError};
use muster_wire::sync::{ReportAck, ReportResult};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::blobs::Blobs;
use crate::clock::Clock;
use crate::metrics::{ReportMetrics, StateExit};
use crate::view::View;

/// How many reports may wait to be taken; more senders wait for their turn.
const QUEUE: usize = 1024;
/// How often a report is tried again when its node moves under it. Only two servers that both take reports of one node
/// can make that happen, and one of them wins each time.
const TRIES: usize = 5;
/// How long a refused report waits for the view. Others wait behind it.
const CATCH_UP: Duration = Duration::from_millis(500);

#[derive(Debug, Error)]
pub enum ReportError {
    #[error("{node} is not in the design of {env}")]
    UnknownNode { env: EnvName, node: NodeName },
    #[error("the report cannot be committed")]
    Store(#[source] StoreError),
    #[error("the status of {node} moves faster than this report can be applied")]
    Contended { node: NodeName },
    #[error("what the store holds of {node} cannot be read")]
    Unreadable {
        node: NodeName,
        #[source]
        source: serde_json::Error,
    },
    #[error("{env} is being restored")]
    Restoring { env: EnvName },
    #[error("the report's log cannot be kept")]
    Log(#[source] io::Error),
    #[error("the server is stopping")]
    Stopping,
}

/// The way in for reports.
#[derive(Clone, Debug)]
pub struct Reports {
    jobs: mpsc::Sender<Job>,
    metrics: ReportMetrics,
}

/// A report, and who waits for its answer.
#[derive(Debug)]
pub(crate) struct Job {
    /// Asked for at every turn while the report waits, so it is made once.
    pub(crate) place: Place,
    env: EnvName,
    report: Report,
    /// All of it, with its log, as it was sent.
    body: Bytes,
    /// Under which digest that is kept.
    log: String,
    reply: oneshot::Sender<Result<ReportAck, ReportError>>,
}

/// Which node, of which environment.
pub(crate) type Place = Arc<(EnvName, NodeName)>;

/// Carries out what reports change; [`crate::reports::intake::Intake`] says which of them together.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) view: Arc<View>,
    pub(crate) blobs: Arc<Blobs>,
    pub(crate) clock: Clock,
    pub(crate) metrics: ReportMetrics,
}

/// What is known of a node's status.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    pub(crate) observed: Option<(ObservedRecord, Revision)>,
    pub(crate) history: RunHistory,
}

impl Status {
    pub(crate) fn revision(&self) -> Option<Revision> {
        self.observed.as_ref().map(|(_, at)| *at)
    }
}

impl Reports {
    /// The way in, and where it leads.
    pub(crate) fn channel(metrics: ReportMetrics) -> (Self, mpsc::Receiver<Job>) {
        let (sender, jobs) = mpsc::channel(QUEUE);
        (Self { jobs: sender, metrics }, jobs)
    }

    /// How many reports wait to be taken, and how many can.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.jobs.max_capacity() - self.jobs.capacity(), self.jobs.max_capacity())
    }

    /// Commits a report, and keeps it as it was sent; when this answers, its effect is durable.
    pub async fn take(&self, env: EnvName, report: Report, body: Bytes) -> Result<ReportAck, ReportError> {
        let begin = Instant::now();
        let answer = self.commit(env, report, body).await;
        self.metrics.answered(&answer, begin.elapsed());
        answer
    }

    async fn commit(&self, env: EnvName, report: Report, body: Bytes) -> Result<ReportAck, ReportError> {
        let (reply, answer) = oneshot::channel();
        let place = Arc::new((env.clone(), report.node.clone()));
        let job = Job { place, env, report, log: Blobs::digest(&body), body, reply };
        self.jobs.send(job).await.map_err(|_| ReportError::Stopping)?;
        answer.await.unwrap_or(Err(ReportError::Stopping))
    }
}

/// A report with the move that it makes.
#[derive(Debug)]
pub(crate) struct Planned {
    job: Job,
    applied: Box<AppliedMove>,
    left: Option<StateExit>,
}

impl Committer {
    /// Decides what a report does. Answers it at once if that is nothing.
    pub(crate) fn plan(&self, job: Job, status: Status) -> Option<Planned> {
        let decided = self.decide(&job, &status);
        match decided {
            Ok(StatusMove::Apply(applied)) => {
                let left = left(&status, &applied);
                Some(Planned { job, applied, left })
            }
            Ok(unmoved @ (StatusMove::AlreadyApplied | StatusMove::Outdated)) => {
                let revision = status.revision().unwrap_or_default();
                reply(job, Ok(ReportAck { taken: taken(&unmoved), revision }));
                None
            }
            Err(error) => {
                reply(job, Err(error));
                None
            }
        }
    }

    /// What the design says of a node, and since when.
    fn designed(&self, job: &Job) -> Result<(NodeRecord, Revision), ReportError> {
        let fleets = self.view.fleets();
        let fleet = fleets.get(&job.env);
        if fleet.is_some_and(|fleet| fleet.restoring().is_some()) {
            return Err(ReportError::Restoring { env: job.env.clone() });
        }
        let node = fleet.and_then(|fleet| fleet.get(&job.report.node));
        let designed = node.and_then(|node| Some((node.record.clone()?, node.record_at?)));
        designed.ok_or_else(|| ReportError::UnknownNode { env: job.env.clone(), node: job.report.node.clone() })
    }

    fn decide(&self, job: &Job, status: &Status) -> Result<StatusMove, ReportError> {
        let (record, designed_at) = self.designed(job)?;
        let known = MoveInput {
            keys: &Keys::new(&job.env),
            node: &job.report.node,
            role: &record.role,
            designed_at,
            in_service: !record.is_leaving(),
            observed: status.observed.as_ref().map(|(observed, at)| (observed, *at)),
            history: &status.history,
            log: Some(&job.log),
            now: self.clock.now(),
        };
        let unreadable = |source| ReportError::Unreadable { node: job.report.node.clone(), source };
        status_move::decide(known, &job.report).map_err(unreadable)
    }

    /// Commits a group of distinct nodes, and says what is known of them then.
    pub(crate) async fn commit_group(&self, group: Vec<Planned>) -> Vec<(Place, Status)> {
        let mut group = self.keep_logs(group).await;
        if group.is_empty() {
            return Vec::new();
        }
        let mut txn = Txn::new();
        // Whoever has to go on alone decides anew, and makes a transaction of its own.
        group.iter_mut().for_each(|plan| txn.merge(std::mem::take(&mut plan.applied.txn)));
        match self.store.commit(txn).await {
            Ok(CommitOutcome::Committed { revision }) => {
                self.metrics.group(group.len());
                group.into_iter().map(|plan| self.committed(plan, revision)).collect()
            }
            // One of them moved, or broke a rule, or the answer was lost: each on its own finds out what is true.
            Ok(CommitOutcome::Conflict { .. }) | Err(StoreError::Unknown { .. } | StoreError::Invalid(_)) => {
                join_all(group.into_iter().map(|plan| self.commit_alone(plan))).await.into_iter().flatten().collect()
            }
            Err(error) => {
                group.into_iter().for_each(|plan| reply(plan.job, Err(ReportError::Store(error.clone()))));
                Vec::new()
            }
        }
    }

    /// Writes the logs of a group to files: all of them in one go, because the way to a thread that may block costs as
    /// much as writing one. A report whose log cannot be kept is answered with that, and the others go on.
    async fn keep_logs(&self, group: Vec<Planned>) -> Vec<Planned> {
        let blobs = Arc::clone(&self.blobs);
        let kept = tokio::task::spawn_blocking(move || {
            let keep = |plan: Planned| match blobs.keep_report(&plan.job.log, &plan.job.body) {
                Ok(()) => Some(plan),
                Err(error) => {
                    reply(plan.job, Err(ReportError::Log(error)));
                    None
                }
            };
            group.into_iter().filter_map(keep).collect()
        });
        // It is not cancelled, so it could only have panicked: those who wait hear that nobody answers.
        kept.await.unwrap_or_default()
    }

    fn committed(&self, plan: Planned, revision: Revision) -> (Place, Status) {
        let Planned { job, applied, left } = plan;
        self.metrics.left(left);
        self.forget(&job, applied.dropped);
        let place = job.place.clone();
        reply(job, Ok(ReportAck { taken: ReportResult::Applied, revision }));
        (place, Status { observed: Some((applied.observed, revision)), history: applied.history })
    }

    /// Commits one report on what the store says now, not on what the view said.
    async fn commit_alone(&self, plan: Planned) -> Option<(Place, Status)> {
        let job = plan.job;
        match self.try_alone(&job).await {
            Ok((taken, status)) => {
                let place = job.place.clone();
                let revision = status.revision().unwrap_or_default();
                reply(job, Ok(ReportAck { taken, revision }));
                Some((place, status))
            }
            Err(error) => {
                reply(job, Err(error));
                None
            }
        }
    }

    async fn try_alone(&self, job: &Job) -> Result<(ReportResult, Status), ReportError> {
        let node = &job.report.node;
        let mut lost = None;
        for _ in 0..TRIES {
            let status = self.read(&job.env, node).await?;
            match self.decide(job, &status)? {
                StatusMove::Apply(applied) => {
                    let left = left(&status, &applied);
                    match self.store.commit(applied.txn).await {
                        Ok(CommitOutcome::Committed { revision }) => {
                            self.metrics.group(1);
                            self.metrics.left(left);
                            self.forget(job, applied.dropped);
                            let observed = Some((applied.observed, revision));
                            return Ok((ReportResult::Applied, Status { observed, history: applied.history }));
                        }
                        // Read again: the report's own place in the order tells whether it was applied. What the design
                        // says comes from the view, which may have to catch up with another replica.
                        Ok(CommitOutcome::Conflict { revision, .. }) => {
                            let _ = timeout(CATCH_UP, self.view.reach(revision)).await;
                        }
                        Err(error @ StoreError::Unknown { .. }) => lost = Some(error),
                        Err(error) => return Err(ReportError::Store(error)),
                    }
                }
                unmoved @ (StatusMove::AlreadyApplied | StatusMove::Outdated) => return Ok((taken(&unmoved), status)),
            }
        }
        Err(lost.map_or_else(|| ReportError::Contended { node: node.clone() }, ReportError::Store))
    }

    /// Removes blobs beside the work: reports do not wait for it, and one that stays is swept at the next start.
    fn forget(&self, job: &Job, mut digests: Vec<String>) {
        {
            // An environment that was restored under another name shares its past, and with it the blobs, with the first.
            let fleets = self.view.fleets();
            let others = fleets.values().filter(|fleet| fleet.env != job.env);
            for node in others.filter_map(|fleet| fleet.get(&job.report.node)) {
                let history = node.history();
                digests.retain(|digest| !history.0.iter().any(|past| past.logs.contains(digest)));
            }
        }
        if !digests.is_empty() {
            let blobs = Arc::clone(&self.blobs);
            tokio::task::spawn_blocking(move || digests.iter().for_each(|digest| blobs.remove(digest)));
        }
    }

    async fn read(&self, env: &EnvName, node: &NodeName) -> Result<Status, ReportError> {
        let keys = Keys::new(env);
        let observed = self.store.get(&keys.observed(node)).await.map_err(ReportError::Store)?;
        let history = self.store.get(&keys.history(node)).await.map_err(ReportError::Store)?;
        let unreadable = |source| ReportError::Unreadable { node: node.clone(), source };
        Ok(Status {
            observed: observed
                .map(|kv| serde_json::from_slice(&kv.value).map(|observed| (observed, kv.revision)))
                .transpose()
                .map_err(unreadable)?,
            history: history
                .map(|kv| serde_json::from_slice(&kv.value))
                .transpose()
                .map_err(unreadable)?
                .unwrap_or_default(),
        })
    }
}

fn left(before: &Status, applied: &AppliedMove) -> Option<StateExit> {
    StateExit::between(before.observed.as_ref().map(|(observed, _)| observed), &applied.observed)
}

fn taken(unmoved: &StatusMove) -> ReportResult {
    match unmoved {
        StatusMove::Apply(_) => ReportResult::Applied,
        StatusMove::AlreadyApplied => ReportResult::AlreadyApplied,
        StatusMove::Outdated => ReportResult::Outdated,
    }
}

/// Whoever asked may have gone: the commit stands all the same.
fn reply(job: Job, answer: Result<ReportAck, ReportError>) {
    let _ = job.reply.send(answer);
}
