//! Carries out the IO of the report intake in virtual time.
//!
//! [`muster_core::report::intake`] decides, as it does in the server: which reports are committed together, what is retried,
//! and what is cached. Here its requests travel to the model store, and a server may crash between any two of them.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use muster_agent::report::dispatch::ServerAnswer;
use muster_core::fleet::Fleet;
use muster_core::report::group_commit::{CATCH_UP, GroupCommit, GroupIoRequest, GroupIoResult, GroupPart};
use muster_core::report::history::NodeHistory;
use muster_core::report::intake::{
    Intake, IntakeView, NodeDesign, ObservedStatus, ReportAnswer, ReportBatch, ReportRejection, ReportingNode,
    Submission,
};
use muster_core::report::{Outcome, Report};
use muster_core::txn::Revision;
use muster_wire::problem::ProblemCode;
use muster_wire::sync::ReportResult;

use super::calls::{Answer, Call, Failure, Request};
use crate::simulation::checker::Rule;
use crate::simulation::event::{Event, MachineNumber, ReplicaEvent, ReplicaNumber};
use crate::simulation::world::World;

/// A report whose agent waits for the answer.
#[derive(Clone, Debug)]
pub(crate) struct PendingReport {
    node: ReportingNode,
    machine: MachineNumber,
    agent: u64,
    ticket: u64,
    report: Box<Report>,
}

impl Submission for PendingReport {
    fn node(&self) -> &ReportingNode {
        &self.node
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn log(&self) -> Option<&str> {
        None
    }
}

/// One request of a group in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupRequest {
    group: u64,
    part: GroupPart,
}

/// The intake of one server, with its groups in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct ReportIntake {
    intake: Intake<PendingReport>,
    /// Reports that wait until the intake has room.
    queue: VecDeque<PendingReport>,
    groups: BTreeMap<u64, GroupInFlight>,
    groups_started: u64,
    /// Requests that wait until the view has reached a revision.
    catching_up: Vec<(Revision, GroupRequest)>,
}

#[derive(Clone, Debug)]
struct GroupInFlight {
    nodes: Vec<ReportingNode>,
    commit: GroupCommit<PendingReport, Failure>,
    /// Requests that are not answered yet.
    open: usize,
}

/// Answers that a step of the intake gives.
type Answers = Vec<(PendingReport, ReportAnswer<Failure>)>;

/// The view and the clock of one server.
struct ServerView<'a> {
    fleet: Option<&'a Fleet>,
    now: Timestamp,
}

impl IntakeView for ServerView<'_> {
    fn revision(&self) -> Revision {
        self.fleet.map(|fleet| fleet.revision).unwrap_or_default()
    }

    fn design(&self, node: &ReportingNode) -> Result<NodeDesign, ReportRejection> {
        NodeDesign::from_fleet(self.fleet, &node.1)
    }

    fn status(&self, node: &ReportingNode, cached: Option<Revision>) -> Option<ObservedStatus> {
        ObservedStatus::from_fleet(self.fleet, &node.1, cached)
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}

impl World {
    pub(super) fn report_arrives(
        &mut self,
        replica: ReplicaNumber,
        machine: MachineNumber,
        agent: u64,
        ticket: u64,
        report: Box<Report>,
    ) {
        let Some(env) = self.replicas[replica].view.as_ref().map(|fleet| fleet.env.clone()) else {
            self.answer_report(replica, machine, agent, ticket, ServerAnswer::Refused(ProblemCode::CannotTell));
            return;
        };
        let name = report.node.clone();
        // From now on the server wakes the node when one of the keys changes that this run has looked up.
        if let Outcome::Configured(_) = report.outcome
            && let Some(connection) = self.replicas[replica].agents.connections.get_mut(&name)
        {
            connection.seen.clone_from(&report.lookups);
            if connection.is_accepted() {
                self.send_updates(replica, &name);
            }
        }
        let pending = PendingReport { node: ReportingNode::new((env, name)), machine, agent, ticket, report };
        self.replicas[replica].reports.queue.push_back(pending);
        self.start_groups(replica);
    }

    /// Starts all groups that the intake allows.
    fn start_groups(&mut self, replica: ReplicaNumber) {
        let now = self.clock_of(replica);
        let mut answers = Answers::new();
        let mut requests = Vec::new();
        let server = &mut self.replicas[replica];
        let view = ServerView { fleet: server.view.as_ref(), now };
        let reports = &mut server.reports;
        loop {
            while reports.intake.has_room()
                && let Some(pending) = reports.queue.pop_front()
            {
                reports.intake.submit(pending);
            }
            let mut answer = |pending, answer| answers.push((pending, answer));
            let Some(ReportBatch { nodes, group: mut commit }) = reports.intake.next_batch(&view, &mut answer) else {
                break;
            };
            let Some(first) = commit.start() else { continue };
            reports.groups_started += 1;
            let group = reports.groups_started;
            reports.groups.insert(group, GroupInFlight { nodes, commit, open: 1 });
            requests.push((GroupRequest { group, part: GroupPart::Group }, first));
        }
        self.send_answers(replica, answers);
        for (request, io) in requests {
            self.send_request(replica, request, io);
        }
    }

    fn send_request(&mut self, replica: ReplicaNumber, request: GroupRequest, io: GroupIoRequest) {
        match io {
            GroupIoRequest::Commit(txn) => self.call(replica, Call::ReportCommit { request }, Request::Commit(txn)),
            GroupIoRequest::ReadStatus => {
                let reports = &self.replicas[replica].reports;
                let pending =
                    reports.groups.get(&request.group).and_then(|group| group.commit.submission(request.part));
                let Some(node) = pending.map(|pending| &pending.node.1) else { return };
                let keys = vec![self.keys.observed(node), self.keys.run_list(node)];
                let read = Request::Read { keys, prefix: Some(self.keys.past_runs(node)) };
                self.call(replica, Call::ReportRead { request }, read);
            }
            GroupIoRequest::CatchUp(revision) => {
                let life = self.replicas[replica].life;
                self.replicas[replica].reports.catching_up.push((revision, request));
                let what = ReplicaEvent::CatchUpEnds { request, revision };
                self.queue.schedule(self.now + CATCH_UP, Event::Replica { replica, life, what });
                self.reports_catch_up(replica);
            }
        }
    }

    pub(super) fn report_committed(&mut self, replica: ReplicaNumber, request: GroupRequest, answer: Answer) {
        let result = match answer {
            Answer::Committed { revision } => GroupIoResult::Committed(revision),
            Answer::Refused { revision, .. } => GroupIoResult::Refused(revision),
            Answer::Failed(Failure::Unknown) => GroupIoResult::Unknown(Failure::Unknown),
            Answer::Failed(failure) => GroupIoResult::Failed(failure),
            Answer::Read { .. } | Answer::Joined { .. } | Answer::Kept => GroupIoResult::Failed(Failure::Unavailable),
        };
        self.resume_group(replica, request, result);
    }

    pub(super) fn report_read(&mut self, replica: ReplicaNumber, request: GroupRequest, answer: Answer) {
        let result = match answer {
            Answer::Read { values, range, .. } => {
                let value = |at: usize| values.get(at).and_then(Option::as_ref);
                let observed = value(0).map(|kv| (&kv.value[..], kv.revision));
                let runs = range.iter().map(|kv| (kv.key.as_str(), &kv.value[..], kv.revision));
                let history = NodeHistory::from_store(runs, value(1).map(|kv| &kv.value[..]));
                match ObservedStatus::from_store(observed, history) {
                    Ok(status) => GroupIoResult::Status(Box::new(status)),
                    Err(error) => GroupIoResult::Unreadable(error),
                }
            }
            Answer::Failed(failure) => GroupIoResult::Failed(failure),
            Answer::Committed { .. } | Answer::Refused { .. } | Answer::Joined { .. } | Answer::Kept => {
                GroupIoResult::Failed(Failure::Unavailable)
            }
        };
        self.resume_group(replica, request, result);
    }

    /// Resumes the requests whose revision the view has reached.
    pub(super) fn reports_catch_up(&mut self, replica: ReplicaNumber) {
        let view = self.replicas[replica].view.as_ref().map(|fleet| fleet.revision).unwrap_or_default();
        let waiting = std::mem::take(&mut self.replicas[replica].reports.catching_up);
        let (reached, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(revision, _)| *revision <= view);
        self.replicas[replica].reports.catching_up = rest;
        for (_, request) in reached {
            self.resume_group(replica, request, GroupIoResult::CaughtUp);
        }
    }

    /// The time for a catch-up is over.
    pub(super) fn catch_up_ends(&mut self, replica: ReplicaNumber, request: GroupRequest, revision: Revision) {
        let catching_up = &mut self.replicas[replica].reports.catching_up;
        if let Some(at) = catching_up.iter().position(|waiting| *waiting == (revision, request)) {
            catching_up.remove(at);
            self.resume_group(replica, request, GroupIoResult::CaughtUp);
        }
    }

    fn resume_group(&mut self, replica: ReplicaNumber, request: GroupRequest, result: GroupIoResult<Failure>) {
        let GroupRequest { group: number, part } = request;
        let now = self.clock_of(replica);
        let mut answers = Answers::new();
        let server = &mut self.replicas[replica];
        let view = ServerView { fleet: server.view.as_ref(), now };
        let Some(group) = server.reports.groups.get_mut(&number) else { return };
        let next = group.commit.resume(part, result, &view, &mut |pending, answer| answers.push((pending, answer)));
        group.open = group.open + next.len() - 1;
        if group.open == 0
            && let Some(GroupInFlight { nodes, commit, .. }) = server.reports.groups.remove(&number)
        {
            server.reports.intake.group_finished(&nodes, commit.finish(), view.revision());
        }
        self.send_answers(replica, answers);
        for (part, io) in next {
            self.send_request(replica, GroupRequest { group: number, part }, io);
        }
        self.start_groups(replica);
    }

    fn send_answers(&mut self, replica: ReplicaNumber, answers: Answers) {
        for (pending, answer) in answers {
            self.check_durable(&pending, &answer);
            let answer = match answer {
                ReportAnswer::Applied { .. } => ServerAnswer::Taken(ReportResult::Applied),
                ReportAnswer::AlreadyApplied { .. } => ServerAnswer::Taken(ReportResult::AlreadyApplied),
                ReportAnswer::Outdated { .. } => ServerAnswer::Taken(ReportResult::Outdated),
                ReportAnswer::Rejected(ReportRejection::UnknownNode) => ServerAnswer::Refused(ProblemCode::UnknownNode),
                ReportAnswer::Rejected(ReportRejection::Restoring) => ServerAnswer::Refused(ProblemCode::CannotTell),
                ReportAnswer::Rejected(ReportRejection::Unreadable(_)) => ServerAnswer::Refused(ProblemCode::Internal),
                ReportAnswer::Contended => ServerAnswer::Refused(ProblemCode::Conflict),
                ReportAnswer::Failed(Failure::Full) => ServerAnswer::Refused(ProblemCode::StoreFull),
                ReportAnswer::Failed(Failure::Unavailable | Failure::Unknown | Failure::LeaseEnded) => {
                    ServerAnswer::Refused(ProblemCode::StoreUnavailable)
                }
            };
            let PendingReport { machine, agent, ticket, .. } = pending;
            self.answer_report(replica, machine, agent, ticket, answer);
        }
    }

    /// Checks that a report with a positive answer, or a later one of its node, is in the store.
    fn check_durable(&mut self, pending: &PendingReport, answer: &ReportAnswer<Failure>) {
        let Report { node, incarnation, seq, .. } = &*pending.report;
        let report = (*incarnation, *seq);
        let Some(stored) = self.checker.fleet().get(node) else { return };
        let stored = stored.observed.as_ref().map_or((0, 0), |(observed, _)| (observed.incarnation, observed.seq));
        let is_durable = match answer {
            ReportAnswer::Applied { .. } | ReportAnswer::AlreadyApplied { .. } => stored >= report,
            ReportAnswer::Outdated { .. } => stored > report,
            ReportAnswer::Rejected(_) | ReportAnswer::Contended | ReportAnswer::Failed(_) => true,
        };
        if !is_durable {
            let what = format!("report {report:?} of {node} is answered, and the store has {stored:?}");
            self.checker.report(Rule::ReportDurable, what);
            self.log_violations();
        }
    }
}
