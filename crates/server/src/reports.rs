//! Takes reports in, and commits them in groups.
//!
//! One task ([`Intake::run`]) collects what has arrived, makes groups of distinct nodes, and commits the groups side by
//! side, each as one transaction. A node's next report waits for the one before it. When a group is refused, because
//! one of its nodes moved meanwhile, its reports are committed one by one with what the store says now.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName, Role};
use muster_core::records::{History, Observed};
use muster_core::report::Report;
use muster_core::status_move::{self, Applied, Known, Move};
use muster_core::txn::{Revision, Txn};
use muster_store::{Outcome, Store, StoreError};
use muster_wire::sync::{ReportTaken, Taken};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::blobs::Blobs;
use crate::clock::Clock;
use crate::metrics::{Left, ReportMetrics};
use crate::view::View;

/// A move is 8 operations at most, and etcd takes 128 in a transaction.
const GROUP: usize = 16;
/// How many reports one round takes: 16 groups side by side keep the store's own group commit full.
const ROUND: usize = 256;
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
    #[error("the server is stopping")]
    Stopping,
}

/// The way in for reports.
#[derive(Clone, Debug)]
pub struct Reports {
    jobs: mpsc::Sender<Job>,
    metrics: ReportMetrics,
}

#[derive(Debug)]
struct Job {
    env: EnvName,
    report: Report,
    /// Digest of the blob that holds it.
    log: Option<String>,
    reply: oneshot::Sender<Result<ReportTaken, ReportError>>,
}

/// The task that commits reports.
#[derive(Debug)]
pub(crate) struct Intake {
    jobs: mpsc::Receiver<Job>,
    store: Arc<dyn Store>,
    view: Arc<View>,
    blobs: Arc<Blobs>,
    clock: Clock,
    metrics: ReportMetrics,
    /// What this task has committed and the view may not have taken in yet.
    recent: HashMap<(EnvName, NodeName), Status>,
}

/// What is known of a node's status.
#[derive(Clone, Debug, Default)]
struct Status {
    observed: Option<(Observed, Revision)>,
    history: History,
}

impl Status {
    fn revision(&self) -> Option<Revision> {
        self.observed.as_ref().map(|(_, at)| *at)
    }
}

impl Reports {
    pub(crate) fn channel(
        store: Arc<dyn Store>,
        view: Arc<View>,
        blobs: Arc<Blobs>,
        clock: Clock,
        metrics: ReportMetrics,
    ) -> (Self, Intake) {
        let (sender, jobs) = mpsc::channel(QUEUE);
        let intake = Intake { jobs, store, view, blobs, clock, metrics: metrics.clone(), recent: HashMap::new() };
        (Self { jobs: sender, metrics }, intake)
    }

    /// How many reports wait to be taken, and how many can.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.jobs.max_capacity() - self.jobs.capacity(), self.jobs.max_capacity())
    }

    /// Commits a report; when this answers, its effect is durable.
    pub async fn take(&self, env: EnvName, report: Report, log: Option<String>) -> Result<ReportTaken, ReportError> {
        let begin = Instant::now();
        let answer = self.commit(env, report, log).await;
        self.metrics.answered(&answer, begin.elapsed());
        answer
    }

    async fn commit(&self, env: EnvName, report: Report, log: Option<String>) -> Result<ReportTaken, ReportError> {
        let (reply, answer) = oneshot::channel();
        let job = Job { env, report, log, reply };
        self.jobs.send(job).await.map_err(|_| ReportError::Stopping)?;
        answer.await.unwrap_or(Err(ReportError::Stopping))
    }
}

/// A report with the move that it makes.
struct Planned {
    job: Job,
    applied: Box<Applied>,
    left: Option<Left>,
}

impl Intake {
    /// Takes reports until all senders are gone.
    pub(crate) async fn run(mut self) {
        let mut waiting: VecDeque<Job> = VecDeque::new();
        loop {
            if waiting.is_empty() {
                match self.jobs.recv().await {
                    Some(job) => waiting.push_back(job),
                    None => return,
                }
            }
            while waiting.len() < ROUND
                && let Ok(job) = self.jobs.try_recv()
            {
                waiting.push_back(job);
            }
            self.round(&mut waiting).await;
        }
    }

    /// Commits at most one report of each node.
    async fn round(&mut self, waiting: &mut VecDeque<Job>) {
        let mut busy: HashSet<(EnvName, NodeName)> = HashSet::new();
        let mut later = VecDeque::new();
        let mut planned = Vec::new();
        for job in waiting.drain(..) {
            if !busy.insert((job.env.clone(), job.report.node.clone())) {
                later.push_back(job);
                continue;
            }
            let status = self.status(&job.env, &job.report.node);
            planned.extend(self.plan(job, status));
        }
        *waiting = later;

        let mut groups: Vec<Vec<Planned>> = Vec::new();
        for plan in planned {
            match groups.last_mut() {
                Some(group) if group.len() < GROUP => group.push(plan),
                Some(_) | None => groups.push(vec![plan]),
            }
        }
        let committed: Vec<_> = join_all(groups.into_iter().map(|group| self.commit_group(group))).await;
        for ((env, node), status) in committed.into_iter().flatten() {
            self.recent.insert((env, node), status);
        }
        let seen = self.view.revision().unwrap_or_default();
        self.recent.retain(|_, status| status.revision() > Some(seen));
    }

    /// The newest that is known of a node: the view, or what was committed and is not in it yet.
    fn status(&self, env: &EnvName, node: &NodeName) -> Status {
        let fleets = self.view.fleets();
        let known = fleets.get(env).and_then(|fleet| fleet.get(node));
        let recent = self.recent.get(&(env.clone(), node.clone()));
        let at = known.and_then(|known| known.observed.as_ref()).map(|(_, at)| *at);
        match recent.filter(|recent| recent.revision() > at) {
            Some(recent) => recent.clone(),
            None => known
                .map(|known| Status { observed: known.observed.clone(), history: known.history() })
                .unwrap_or_default(),
        }
    }

    /// Decides what a report does. Answers it at once if that is nothing.
    fn plan(&self, job: Job, status: Status) -> Option<Planned> {
        let decided = self.decide(&job, &status);
        match decided {
            Ok(Move::Apply(applied)) => {
                let left = left(&status, &applied);
                Some(Planned { job, applied, left })
            }
            Ok(unmoved @ (Move::AlreadyApplied | Move::Outdated)) => {
                let revision = status.revision().unwrap_or_default();
                reply(job, Ok(ReportTaken { taken: taken(&unmoved), revision }));
                None
            }
            Err(error) => {
                reply(job, Err(error));
                None
            }
        }
    }

    /// What the design says of a node, and since when.
    fn designed(&self, job: &Job) -> Result<(Role, Revision), ReportError> {
        let fleets = self.view.fleets();
        let fleet = fleets.get(&job.env);
        if fleet.is_some_and(|fleet| fleet.restoring().is_some()) {
            return Err(ReportError::Restoring { env: job.env.clone() });
        }
        let node = fleet.and_then(|fleet| fleet.get(&job.report.node));
        let designed = node.and_then(|node| Some((node.record.as_ref()?.role.clone(), node.record_at?)));
        designed.ok_or_else(|| ReportError::UnknownNode { env: job.env.clone(), node: job.report.node.clone() })
    }

    fn decide(&self, job: &Job, status: &Status) -> Result<Move, ReportError> {
        let (role, designed_at) = self.designed(job)?;
        let known = Known {
            keys: &Keys::of(&job.env),
            node: &job.report.node,
            role: &role,
            designed_at,
            in_service: true,
            observed: status.observed.as_ref().map(|(observed, at)| (observed, *at)),
            history: &status.history,
            log: job.log.as_deref(),
            now: self.clock.now(),
        };
        let unreadable = |source| ReportError::Unreadable { node: job.report.node.clone(), source };
        status_move::decide(known, &job.report).map_err(unreadable)
    }

    async fn commit_group(&self, mut group: Vec<Planned>) -> Vec<((EnvName, NodeName), Status)> {
        let mut txn = Txn::new();
        // Whoever has to go on alone decides anew, and makes a transaction of its own.
        group.iter_mut().for_each(|plan| txn.merge(std::mem::take(&mut plan.applied.txn)));
        match self.store.commit(txn).await {
            Ok(Outcome::Committed { revision }) => {
                self.metrics.group(group.len());
                group.into_iter().map(|plan| self.committed(plan, revision)).collect()
            }
            // One of them moved, or broke a rule, or the answer was lost: each on its own finds out what is true.
            Ok(Outcome::Refused { .. }) | Err(StoreError::Unknown { .. } | StoreError::Invalid(_)) => {
                join_all(group.into_iter().map(|plan| self.commit_alone(plan))).await.into_iter().flatten().collect()
            }
            Err(error) => {
                group.into_iter().for_each(|plan| reply(plan.job, Err(ReportError::Store(error.clone()))));
                Vec::new()
            }
        }
    }

    fn committed(&self, plan: Planned, revision: Revision) -> ((EnvName, NodeName), Status) {
        let Planned { job, applied, left } = plan;
        self.metrics.left(left);
        self.forget(applied.dropped);
        let place = (job.env.clone(), job.report.node.clone());
        reply(job, Ok(ReportTaken { taken: Taken::Applied, revision }));
        (place, Status { observed: Some((applied.observed, revision)), history: applied.history })
    }

    /// Commits one report on what the store says now, not on what the view said.
    async fn commit_alone(&self, plan: Planned) -> Option<((EnvName, NodeName), Status)> {
        let job = plan.job;
        match self.try_alone(&job).await {
            Ok((taken, status)) => {
                let place = (job.env.clone(), job.report.node.clone());
                let revision = status.revision().unwrap_or_default();
                reply(job, Ok(ReportTaken { taken, revision }));
                Some((place, status))
            }
            Err(error) => {
                reply(job, Err(error));
                None
            }
        }
    }

    async fn try_alone(&self, job: &Job) -> Result<(Taken, Status), ReportError> {
        let node = &job.report.node;
        for _ in 0..TRIES {
            let status = self.read(&job.env, node).await?;
            match self.decide(job, &status)? {
                Move::Apply(applied) => {
                    let left = left(&status, &applied);
                    match self.store.commit(applied.txn).await {
                        Ok(Outcome::Committed { revision }) => {
                            self.metrics.group(1);
                            self.metrics.left(left);
                            self.forget(applied.dropped);
                            let observed = Some((applied.observed, revision));
                            return Ok((Taken::Applied, Status { observed, history: applied.history }));
                        }
                        // Read again: the report's own place in the order tells whether it was applied. What the design
                        // says comes from the view, which may have to catch up with another replica.
                        Ok(Outcome::Refused { revision, .. }) => {
                            let _ = timeout(CATCH_UP, self.view.reach(revision)).await;
                        }
                        Err(StoreError::Unknown { .. }) => {}
                        Err(error) => return Err(ReportError::Store(error)),
                    }
                }
                unmoved @ (Move::AlreadyApplied | Move::Outdated) => return Ok((taken(&unmoved), status)),
            }
        }
        Err(ReportError::Contended { node: node.clone() })
    }

    /// Removes blobs beside the work: reports do not wait for it, and one that stays is swept at the next start.
    fn forget(&self, digests: Vec<String>) {
        if !digests.is_empty() {
            let blobs = Arc::clone(&self.blobs);
            tokio::task::spawn_blocking(move || digests.iter().for_each(|digest| blobs.remove(digest)));
        }
    }

    async fn read(&self, env: &EnvName, node: &NodeName) -> Result<Status, ReportError> {
        let keys = Keys::of(env);
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

fn left(before: &Status, applied: &Applied) -> Option<Left> {
    Left::between(before.observed.as_ref().map(|(observed, _)| observed), &applied.observed)
}

fn taken(unmoved: &Move) -> Taken {
    match unmoved {
        Move::Apply(_) => Taken::Applied,
        Move::AlreadyApplied => Taken::AlreadyApplied,
        Move::Outdated => Taken::Outdated,
    }
}

/// Whoever asked may have gone: the commit stands all the same.
fn reply(job: Job, answer: Result<ReportTaken, ReportError>) {
    let _ = job.reply.send(answer);
}
