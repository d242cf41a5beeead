//! Groups reports and schedules their commits, without IO.
//!
//! ```text
//!  submit ──▶ waiting ──next_batch──▶ GroupCommit (at most 16 distinct nodes) ──IO of the host──▶ group_finished
//!                ▲                                                                                    │
//!                └───────── the next report of a node waits for the one before it ◀───────────────────┘
//! ```
//!
//! A full group is committed at once, while fewer than [`MAX_IN_FLIGHT`] groups are. A smaller group is committed only when
//! no other group is in flight; until then more reports join it. A single report is therefore not delayed, and a burst
//! fills the groups without a timer.
//!
//! The server and the simulator are the hosts: they submit reports, carry out the IO of each [`GroupCommit`], and send the
//! answers. They decide nothing. A host that dies loses only what is in memory: agents send their reports again, and the
//! order of reports makes a repeated report a no-op.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Report;
use super::group_commit::{GroupCommit, PlannedReport};
use crate::fleet::Fleet;
use crate::keys::Keys;
use crate::names::{EnvName, NodeName, Role};
use crate::report::history::NodeHistory;
use crate::report::record::ObservedRecord;
use crate::report::status_move::{self, MoveInput, StatusMove};
use crate::txn::Revision;

/// Reports in one group.
pub const MAX_GROUP: usize = 16;
/// Operations in the transaction of a group: as many as etcd accepts. A report has at most 12, but about 30 if it moves the list
/// of an earlier version to the keys of its runs.
pub const MAX_GROUP_OPS: usize = 128;
/// Groups in flight at the same time: enough to keep a store busy that commits waiting transactions together.
pub const MAX_IN_FLIGHT: usize = 16;
/// Reports that wait here: enough to fill groups of distinct nodes. The host keeps further reports in its own queue.
pub const MAX_WAITING: usize = 256;

/// A node of an environment. Shared, because every queued report and every group in flight holds it.
pub type ReportingNode = Arc<(EnvName, NodeName)>;

/// A report with what the host needs to answer it.
pub trait Submission {
    fn node(&self) -> &ReportingNode;
    fn report(&self) -> &Report;
    /// Place of the blob that holds the report and its log.
    fn log(&self) -> Option<&str>;
    /// Chooses the places of the logs of reports that are committed together, before any of them is decided.
    fn place_logs(_group: &mut [Self])
    where
        Self: Sized,
    {
    }
}

/// Read access to the host's view and clock.
pub trait IntakeView {
    /// The revision that the view has reached.
    fn revision(&self) -> Revision;
    /// The design of a node; see [`NodeDesign::from_fleet`].
    fn design(&self, node: &ReportingNode) -> Result<NodeDesign, ReportRejection>;
    /// The status of a node, if it is newer than `cached`; see [`ObservedStatus::from_fleet`].
    fn status(&self, node: &ReportingNode, cached: Option<Revision>) -> Option<ObservedStatus>;
    fn now(&self) -> Timestamp;
}

/// Reason to refuse a report before anything is written.
#[derive(Debug)]
pub enum ReportRejection {
    UnknownNode,
    Restoring,
    /// The record of the node cannot be encoded.
    Unreadable(serde_json::Error),
}

/// Fields of a node's design that a status move depends on.
#[derive(Clone, Debug)]
pub struct NodeDesign {
    pub role: Role,
    pub designed_at: Revision,
    pub in_service: bool,
}

impl NodeDesign {
    /// Refuses nodes that are not in the design, and environments that are being restored.
    pub fn from_fleet(fleet: Option<&Fleet>, node: &NodeName) -> Result<Self, ReportRejection> {
        if fleet.is_some_and(|fleet| fleet.restoring().is_some()) {
            return Err(ReportRejection::Restoring);
        }
        let node = fleet.and_then(|fleet| fleet.get(node));
        let design = node.and_then(|node| {
            let record = node.record.as_ref()?;
            Some(Self { role: record.role.clone(), designed_at: node.record_at?, in_service: !record.is_leaving() })
        });
        design.ok_or(ReportRejection::UnknownNode)
    }
}

/// Status of a node: its last report in summary, with the revision that fences the next move, and its run history.
#[derive(Clone, Debug, Default)]
pub struct ObservedStatus {
    pub observed: Option<(ObservedRecord, Revision)>,
    pub history: NodeHistory,
}

impl ObservedStatus {
    pub fn revision(&self) -> Option<Revision> {
        self.observed.as_ref().map(|(_, at)| *at)
    }

    /// The status that the view shows. None if the view is not newer than `cached`.
    pub fn from_fleet(fleet: Option<&Fleet>, node: &NodeName, cached: Option<Revision>) -> Option<Self> {
        let node = fleet.and_then(|fleet| fleet.get(node));
        let at = node.and_then(|node| node.observed.as_ref()).map(|(_, at)| *at);
        if cached > at {
            return None;
        }
        let status = node.map(|node| Self { observed: node.observed.clone(), history: node.history.clone() });
        Some(status.unwrap_or_default())
    }

    /// Decodes `observed/<node>` and the history, as read from the store.
    pub fn from_store(
        observed: Option<(&[u8], Revision)>,
        history: Result<NodeHistory, serde_json::Error>,
    ) -> Result<Self, serde_json::Error> {
        let observed = observed.map(|(value, at)| Ok((serde_json::from_slice(value)?, at))).transpose()?;
        Ok(Self { observed, history: history? })
    }
}

/// A service state that a node leaves, and the time that it spent there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateExit {
    pub state: &'static str,
    pub after: Duration,
}

impl StateExit {
    /// None if the node stays in its state, or had none.
    pub fn between(before: Option<&ObservedRecord>, after: &ObservedRecord) -> Option<Self> {
        let before = before.filter(|before| before.state != after.state)?;
        // A clock that was set back must not give a negative time.
        let spent = after.since?.duration_since(before.since?);
        Some(Self { state: before.state.as_ref()?.word(), after: Duration::try_from(spent).unwrap_or_default() })
    }
}

/// Answer to a report. `E` is the host's error of the store.
#[derive(Debug)]
pub enum ReportAnswer<E> {
    Applied {
        revision: Revision,
        exit: Option<StateExit>,
    },
    AlreadyApplied {
        revision: Revision,
    },
    /// The report is older than the last one of the node.
    Outdated {
        revision: Revision,
    },
    Rejected(ReportRejection),
    /// Each attempt found that another replica had moved the node.
    Contended,
    /// The store failed, or its answers were lost.
    Failed(E),
}

/// The next reports to commit together.
#[derive(Clone, Debug)]
pub struct ReportBatch<S, E> {
    /// The nodes that stay in flight until [`Intake::group_finished`].
    pub nodes: Vec<ReportingNode>,
    pub group: GroupCommit<S, E>,
}

/// Status changes that a group has committed, or has read from the store.
pub type CommittedStatuses = Vec<(ReportingNode, ObservedStatus)>;

/// Queue of reports, nodes in flight, and a cache of committed statuses that the view does not show yet.
#[derive(Clone, Debug)]
pub struct Intake<S> {
    waiting: VecDeque<S>,
    groups_in_flight: usize,
    nodes_in_flight: HashSet<ReportingNode>,
    cache: HashMap<ReportingNode, ObservedStatus>,
}

impl<S> Default for Intake<S> {
    fn default() -> Self {
        let (nodes_in_flight, cache) = (HashSet::new(), HashMap::new());
        Self { waiting: VecDeque::new(), groups_in_flight: 0, nodes_in_flight, cache }
    }
}

impl<S: Submission> Intake<S> {
    pub fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    pub fn submit(&mut self, submission: S) {
        self.waiting.push_back(submission);
    }

    /// The next group to commit, if one may be committed now. Reports that change nothing are answered at once.
    pub fn next_batch<E: Clone>(
        &mut self,
        view: &impl IntakeView,
        answer: &mut impl FnMut(S, ReportAnswer<E>),
    ) -> Option<ReportBatch<S, E>> {
        while self.groups_in_flight < MAX_IN_FLIGHT {
            let is_ready = |submission: &&S| !self.nodes_in_flight.contains(submission.node());
            let ready = self.waiting.iter().filter(is_ready).take(MAX_GROUP).count();
            if ready == 0 || (ready < MAX_GROUP && self.groups_in_flight > 0) {
                return None;
            }
            let (nodes, reports) = self.take_group(view, answer);
            if reports.is_empty() {
                self.release(&nodes);
                continue;
            }
            self.groups_in_flight += 1;
            return Some(ReportBatch { nodes, group: GroupCommit::new(reports) });
        }
        None
    }

    /// Takes the next reports of distinct nodes that are not in flight, in the order of their arrival, as many as a transaction
    /// can hold.
    fn take_group<E>(
        &mut self,
        view: &impl IntakeView,
        answer: &mut impl FnMut(S, ReportAnswer<E>),
    ) -> (Vec<ReportingNode>, Vec<PlannedReport<S>>) {
        let (mut nodes, mut group) = (Vec::new(), Vec::new());
        let mut chosen = Vec::with_capacity(MAX_GROUP);
        let mut later = VecDeque::with_capacity(self.waiting.len());
        while let Some(submission) = self.waiting.pop_front() {
            if chosen.len() == MAX_GROUP || !self.nodes_in_flight.insert(submission.node().clone()) {
                later.push_back(submission);
            } else {
                chosen.push(submission);
            }
        }
        S::place_logs(&mut chosen);
        let (mut ops, mut excess) = (0, VecDeque::new());
        for submission in chosen {
            let node = submission.node().clone();
            if !excess.is_empty() {
                // The group is full. The order of arrival stays.
                self.nodes_in_flight.remove(&node);
                excess.push_back(submission);
                continue;
            }
            let status = self.status(view, &node);
            if let Some(planned) = plan(view, submission, status, answer) {
                let with_it = ops + planned.applied.txn.ops.len();
                if with_it > MAX_GROUP_OPS && !group.is_empty() {
                    self.nodes_in_flight.remove(&node);
                    excess.push_back(planned.submission);
                    continue;
                }
                ops = with_it;
                group.push(planned);
            }
            nodes.push(node);
        }
        excess.append(&mut later);
        self.waiting = excess;
        (nodes, group)
    }

    /// The newest known status of a node: from the view, or from the cache while the view is behind.
    fn status(&self, view: &impl IntakeView, node: &ReportingNode) -> ObservedStatus {
        let cached = self.cache.get(node);
        let shown = view.status(node, cached.and_then(ObservedStatus::revision));
        shown.or_else(|| cached.cloned()).unwrap_or_default()
    }

    /// Releases the nodes of a group, and caches what it committed until the view has reached it.
    pub fn group_finished(&mut self, nodes: &[ReportingNode], committed: CommittedStatuses, view: Revision) {
        self.groups_in_flight = self.groups_in_flight.saturating_sub(1);
        self.release(nodes);
        self.cache.extend(committed);
        self.cache.retain(|_, status| status.revision() > Some(view));
    }

    fn release(&mut self, nodes: &[ReportingNode]) {
        nodes.iter().for_each(|node| _ = self.nodes_in_flight.remove(node));
    }
}

/// Decides what a report changes, and answers it at once if that is nothing.
fn plan<S: Submission, E>(
    view: &impl IntakeView,
    submission: S,
    status: ObservedStatus,
    answer: &mut impl FnMut(S, ReportAnswer<E>),
) -> Option<PlannedReport<S>> {
    match decide(view, &submission, &status) {
        Ok(StatusMove::Apply(applied)) => {
            let exit = StateExit::between(status.observed.as_ref().map(|(observed, _)| observed), &applied.observed);
            Some(PlannedReport { submission, applied, history: status.history, exit })
        }
        Ok(unchanged @ (StatusMove::AlreadyApplied | StatusMove::Outdated)) => {
            answer(submission, unchanged_answer(&unchanged, &status));
            None
        }
        Err(rejection) => {
            answer(submission, ReportAnswer::Rejected(rejection));
            None
        }
    }
}

pub(super) fn unchanged_answer<E>(unchanged: &StatusMove, status: &ObservedStatus) -> ReportAnswer<E> {
    let revision = status.revision().unwrap_or_default();
    match unchanged {
        StatusMove::Outdated => ReportAnswer::Outdated { revision },
        StatusMove::AlreadyApplied | StatusMove::Apply(_) => ReportAnswer::AlreadyApplied { revision },
    }
}

pub(super) fn decide(
    view: &impl IntakeView,
    submission: &impl Submission,
    status: &ObservedStatus,
) -> Result<StatusMove, ReportRejection> {
    let (env, node) = &**submission.node();
    let NodeDesign { role, designed_at, in_service } = view.design(submission.node())?;
    let known = MoveInput {
        keys: &Keys::new(env),
        node,
        role: &role,
        designed_at,
        in_service,
        observed: status.observed.as_ref().map(|(observed, at)| (observed, *at)),
        history: &status.history,
        log: submission.log(),
        now: view.now(),
    };
    status_move::decide(known, submission.report()).map_err(ReportRejection::Unreadable)
}
