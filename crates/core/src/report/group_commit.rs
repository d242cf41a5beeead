//! Commits one group of reports, without IO: the transaction of the group first, then each report alone if that fails.
//!
//! The host carries out each [`GroupIoRequest`], and passes the [`GroupIoResult`] to [`GroupCommit::resume`]. A group is refused when
//! one of its nodes was moved by another replica. Its answer may also be lost. In both cases each report is decided again
//! on what the store holds now: the order of reports shows whether it was applied.

use std::time::Duration;

use super::intake::{
    CommittedStatuses, IntakeView, ObservedStatus, ReportAnswer, ReportRejection, StateExit, Submission,
};
use super::intake::{decide, unchanged_answer};
use crate::report::history::NodeHistory;
use crate::report::status_move::{AppliedMove, StatusMove};
use crate::txn::{Revision, Txn};

/// Attempts to commit a report alone. Only two replicas that both receive reports of one node can refuse an attempt, and
/// one of them succeeds each time.
pub const MAX_ATTEMPTS: u32 = 5;
/// Time that a refused report waits for the view. Other reports wait behind it.
pub const CATCH_UP: Duration = Duration::from_millis(500);

/// The part of a group that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPart {
    Group,
    /// One report, after the group has failed.
    Single(usize),
}

/// IO that the host carries out next.
#[derive(Clone, Debug)]
pub enum GroupIoRequest {
    Commit(Txn),
    /// Read the status of the part's node from the store, not from the view.
    ReadStatus,
    /// Wait until the view has reached a revision, for at most [`CATCH_UP`]. The design of a node comes from the view.
    CatchUp(Revision),
}

/// Result of an [`GroupIoRequest`]. `E` is the host's error of the store.
#[derive(Debug)]
pub enum GroupIoResult<E> {
    Committed(Revision),
    /// A guard did not hold, at this revision at the latest.
    Refused(Revision),
    /// The transaction may have been committed, or may be committed later.
    Unknown(E),
    /// The store rejects this transaction, however often it is sent.
    Invalid(E),
    /// The request was not carried out.
    Failed(E),
    Status(Box<ObservedStatus>),
    /// The status in the store cannot be decoded.
    Unreadable(serde_json::Error),
    /// The time of a catch-up is over, with or without success.
    CaughtUp,
}

/// A report with the status move that it makes.
#[derive(Clone, Debug)]
pub struct PlannedReport<S> {
    pub(super) submission: S,
    pub(super) applied: Box<AppliedMove>,
    /// The history before the report.
    pub(super) history: NodeHistory,
    pub(super) exit: Option<StateExit>,
}

/// A report that is committed alone.
#[derive(Clone, Debug)]
struct SingleCommit<S, E> {
    submission: S,
    attempts: u32,
    /// The last error of an attempt with an unknown outcome.
    unknown: Option<E>,
    planned: Option<(Box<AppliedMove>, NodeHistory, Option<StateExit>)>,
}

/// Commit of one group of reports of distinct nodes.
#[derive(Clone, Debug)]
pub struct GroupCommit<S, E> {
    reports: Vec<PlannedReport<S>>,
    singles: Vec<Option<SingleCommit<S, E>>>,
    committed: CommittedStatuses,
}

impl<S: Submission, E: Clone> GroupCommit<S, E> {
    pub(super) fn new(reports: Vec<PlannedReport<S>>) -> Self {
        Self { reports, singles: Vec::new(), committed: Vec::new() }
    }

    /// A group without reports.
    pub fn empty() -> Self {
        Self::new(Vec::new())
    }

    /// Removes the reports that the host cannot commit, before the group starts.
    pub fn filter(&mut self, mut keep: impl FnMut(S) -> Option<S>) {
        let reports = std::mem::take(&mut self.reports).into_iter();
        let kept = reports.filter_map(|report| Some(PlannedReport { submission: keep(report.submission)?, ..report }));
        self.reports = kept.collect();
    }

    /// The reports, in the order in which [`Self::filter`] passes them.
    pub fn submissions(&self) -> impl Iterator<Item = &S> {
        self.reports.iter().map(|report| &report.submission)
    }

    /// Reports that the group's transaction carries.
    pub fn len(&self) -> usize {
        self.reports.len()
    }

    pub fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    /// The report of a part.
    pub fn submission(&self, part: GroupPart) -> Option<&S> {
        match part {
            GroupPart::Group => None,
            GroupPart::Single(at) => self.singles.get(at)?.as_ref().map(|single| &single.submission),
        }
    }

    /// Begins with the transaction of the whole group. None if no report is left.
    pub fn start(&mut self) -> Option<GroupIoRequest> {
        let mut txn = Txn::new();
        // A report that is retried alone is decided again, and makes its own transaction.
        self.reports.iter_mut().for_each(|report| txn.merge(std::mem::take(&mut report.applied.txn)));
        (!self.reports.is_empty()).then_some(GroupIoRequest::Commit(txn))
    }

    /// Continues with the result of a request, and returns the requests that follow from it.
    pub fn resume(
        &mut self,
        part: GroupPart,
        result: GroupIoResult<E>,
        view: &impl IntakeView,
        answer: &mut impl FnMut(S, ReportAnswer<E>),
    ) -> Vec<(GroupPart, GroupIoRequest)> {
        match part {
            GroupPart::Group => self.resume_group(result, answer),
            GroupPart::Single(at) => {
                let next = self.resume_single(at, result, view, answer);
                next.map(|request| (part, request)).into_iter().collect()
            }
        }
    }

    /// The statuses that were committed or read, once no request is left.
    pub fn finish(self) -> CommittedStatuses {
        self.committed
    }

    fn resume_group(
        &mut self,
        result: GroupIoResult<E>,
        answer: &mut impl FnMut(S, ReportAnswer<E>),
    ) -> Vec<(GroupPart, GroupIoRequest)> {
        let reports = std::mem::take(&mut self.reports);
        match result {
            GroupIoResult::Committed(revision) => {
                self.committed.reserve(reports.len());
                for PlannedReport { submission, applied, history, exit } in reports {
                    self.applied(submission, *applied, history, exit, revision, answer);
                }
                Vec::new()
            }
            // A node has moved, a rule of the store was broken, or the answer was lost: each report finds out alone.
            GroupIoResult::Refused(_) | GroupIoResult::Unknown(_) | GroupIoResult::Invalid(_) => {
                let single = |PlannedReport { submission, .. }| {
                    Some(SingleCommit { submission, attempts: 0, unknown: None, planned: None })
                };
                self.singles = reports.into_iter().map(single).collect();
                (0..self.singles.len()).map(|at| (GroupPart::Single(at), GroupIoRequest::ReadStatus)).collect()
            }
            GroupIoResult::Failed(error) => {
                for report in reports {
                    answer(report.submission, ReportAnswer::Failed(error.clone()));
                }
                Vec::new()
            }
            GroupIoResult::Status(_) | GroupIoResult::Unreadable(_) | GroupIoResult::CaughtUp => Vec::new(),
        }
    }

    fn resume_single(
        &mut self,
        at: usize,
        result: GroupIoResult<E>,
        view: &impl IntakeView,
        answer: &mut impl FnMut(S, ReportAnswer<E>),
    ) -> Option<GroupIoRequest> {
        let mut single = self.singles.get_mut(at)?.take()?;
        let request = match result {
            GroupIoResult::Status(status) => return self.decide_single(at, single, *status, view, answer),
            GroupIoResult::Committed(revision) => {
                let (applied, history, exit) = single.planned.take()?;
                self.applied(single.submission, *applied, history, exit, revision, answer);
                return None;
            }
            GroupIoResult::Failed(error) | GroupIoResult::Invalid(error) => {
                answer(single.submission, ReportAnswer::Failed(error));
                return None;
            }
            GroupIoResult::Unreadable(error) => {
                answer(single.submission, ReportAnswer::Rejected(ReportRejection::Unreadable(error)));
                return None;
            }
            GroupIoResult::Refused(revision) => GroupIoRequest::CatchUp(revision),
            GroupIoResult::Unknown(error) => {
                single.unknown = Some(error);
                GroupIoRequest::ReadStatus
            }
            GroupIoResult::CaughtUp => GroupIoRequest::ReadStatus,
        };
        if single.attempts >= MAX_ATTEMPTS {
            let SingleCommit { submission, unknown, .. } = single;
            answer(submission, unknown.map_or(ReportAnswer::Contended, ReportAnswer::Failed));
            return None;
        }
        self.singles[at] = Some(single);
        Some(request)
    }

    /// Decides on what the store holds: this report may have been applied already.
    fn decide_single(
        &mut self,
        at: usize,
        mut single: SingleCommit<S, E>,
        status: ObservedStatus,
        view: &impl IntakeView,
        answer: &mut impl FnMut(S, ReportAnswer<E>),
    ) -> Option<GroupIoRequest> {
        match decide(view, &single.submission, &status) {
            Ok(StatusMove::Apply(mut applied)) => {
                let before = status.observed.as_ref().map(|(observed, _)| observed);
                let exit = StateExit::between(before, &applied.observed);
                let txn = std::mem::take(&mut applied.txn);
                single.planned = Some((applied, status.history, exit));
                single.attempts += 1;
                self.singles[at] = Some(single);
                Some(GroupIoRequest::Commit(txn))
            }
            Ok(unchanged @ (StatusMove::AlreadyApplied | StatusMove::Outdated)) => {
                let (node, unchanged) = (single.submission.node().clone(), unchanged_answer(&unchanged, &status));
                answer(single.submission, unchanged);
                self.committed.push((node, status));
                None
            }
            Err(rejection) => {
                answer(single.submission, ReportAnswer::Rejected(rejection));
                None
            }
        }
    }

    fn applied(
        &mut self,
        submission: S,
        applied: AppliedMove,
        history: NodeHistory,
        exit: Option<StateExit>,
        revision: Revision,
        answer: &mut impl FnMut(S, ReportAnswer<E>),
    ) {
        let AppliedMove { txn: _, observed, history: update } = applied;
        let history = history.committed(update, revision);
        let node = submission.node().clone();
        answer(submission, ReportAnswer::Applied { revision, exit });
        self.committed.push((node, ObservedStatus { observed: Some((observed, revision)), history }));
    }
}
