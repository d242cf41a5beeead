//! Takes reports, in groups: [`muster_core::report::status_move`] decides what each of them changes. When a group is refused, or
//! nobody knows what became of it, each report on its own finds out what is true, on what the store says then.

use muster_agent::report::dispatch::ReportAnswer;
use muster_core::names::NodeName;
use muster_core::report::record::{ObservedRecord, RunHistory};
use muster_core::report::status_move::{self, AppliedMove, MoveInput, StatusMove};
use muster_core::report::{Outcome, Report};
use muster_core::txn::{Revision, Txn};
use muster_store::KeyValue;
use muster_wire::problem::ProblemCode;
use muster_wire::sync::ReportResult;

use super::calls::{Answer, Call, Failure, Request};
use crate::simulation::event::{MachineNumber, ReplicaNumber};
use crate::simulation::world::World;

/// How many distinct nodes are committed together.
const GROUP: usize = 16;
const TRIES: u32 = 5;

/// A report, and who waits for its answer.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    machine: MachineNumber,
    agent: u64,
    ticket: u64,
    report: Box<Report>,
    tries: u32,
    planned: Option<Box<AppliedMove>>,
}

impl Job {
    pub(crate) fn new(machine: MachineNumber, agent: u64, ticket: u64, report: Box<Report>) -> Self {
        Self { machine, agent, ticket, report, tries: 0, planned: None }
    }
}

/// What is known of a node's status.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    observed: Option<(ObservedRecord, Revision)>,
    history: RunHistory,
}

impl Status {
    pub(crate) fn revision(&self) -> Option<Revision> {
        self.observed.as_ref().map(|(_, at)| *at)
    }
}

impl World {
    pub(super) fn take_report(&mut self, replica: ReplicaNumber, job: Job) {
        let node = job.report.node.clone();
        // What the run looked up, and saw: a change of that is news to it from now on.
        if let Outcome::Configured(_) = job.report.outcome
            && let Some(connection) = self.replicas[replica].connections.get_mut(&node)
        {
            connection.seen.clone_from(&job.report.lookups);
            if connection.is_greeted() {
                self.compare(replica, &node);
            }
        }
        self.replicas[replica].intake.push_back(job);
        self.pump(replica);
    }

    /// Commits the next group, if none is under way.
    fn pump(&mut self, replica: ReplicaNumber) {
        if self.replicas[replica].committing {
            return;
        }
        let mut group: Vec<Job> = Vec::new();
        let mut txn = Txn::new();
        let mut later = std::collections::VecDeque::new();
        while let Some(mut job) = self.replicas[replica].intake.pop_front() {
            if group.len() == GROUP || group.iter().any(|other| other.report.node == job.report.node) {
                later.push_back(job);
                continue;
            }
            let status = self.status(replica, &job.report.node);
            match self.decide_report(replica, &job, &status) {
                Ok(StatusMove::Apply(mut applied)) => {
                    txn.merge(std::mem::take(&mut applied.txn));
                    job.planned = Some(applied);
                    group.push(job);
                }
                Ok(StatusMove::AlreadyApplied) => {
                    self.reply(replica, &job, ReportAnswer::Taken(ReportResult::AlreadyApplied))
                }
                Ok(StatusMove::Outdated) => self.reply(replica, &job, ReportAnswer::Taken(ReportResult::Outdated)),
                Err(code) => self.reply(replica, &job, ReportAnswer::Refused(code)),
            }
        }
        self.replicas[replica].intake = later;
        if !group.is_empty() {
            self.replicas[replica].committing = true;
            self.call(replica, Call::ReportGroup { jobs: group }, Request::Commit(txn));
        }
    }

    /// What this server knows of a node: what it has committed itself, or what the view shows.
    fn status(&self, replica: ReplicaNumber, node: &NodeName) -> Status {
        let server = &self.replicas[replica];
        let shown = || {
            let node = server.view.as_ref()?.get(node)?;
            Some(Status { observed: node.observed.clone(), history: node.history() })
        };
        server.statuses.get(node).cloned().or_else(shown).unwrap_or_default()
    }

    fn decide_report(&self, replica: ReplicaNumber, job: &Job, status: &Status) -> Result<StatusMove, ProblemCode> {
        let fleet = self.replicas[replica].view.as_ref().ok_or(ProblemCode::CannotTell)?;
        let node = fleet.get(&job.report.node).ok_or(ProblemCode::UnknownNode)?;
        let (record, designed_at) = node.record.as_ref().zip(node.record_at).ok_or(ProblemCode::UnknownNode)?;
        let known = MoveInput {
            keys: &self.keys,
            node: &job.report.node,
            role: &record.role,
            designed_at,
            in_service: !record.is_leaving(),
            observed: status.observed.as_ref().map(|(observed, at)| (observed, *at)),
            history: &status.history,
            log: None,
            now: self.clock_of(replica),
        };
        status_move::decide(known, &job.report).map_err(|_| ProblemCode::Internal)
    }

    pub(super) fn group_committed(&mut self, replica: ReplicaNumber, jobs: Vec<Job>, answer: Answer) {
        self.replicas[replica].committing = false;
        for job in jobs {
            match &answer {
                Answer::Committed { revision } => self.report_taken(replica, job, *revision),
                Answer::Refused { .. } | Answer::Failed(Failure::Unknown) => self.read_status(replica, job),
                Answer::Failed(Failure::Full) => {
                    self.reply(replica, &job, ReportAnswer::Refused(ProblemCode::StoreFull))
                }
                Answer::Failed(Failure::Unavailable | Failure::LeaseEnded)
                | Answer::Read { .. }
                | Answer::Joined { .. }
                | Answer::Kept => self.reply(replica, &job, ReportAnswer::Refused(ProblemCode::StoreUnavailable)),
            }
        }
        self.pump(replica);
    }

    fn read_status(&mut self, replica: ReplicaNumber, mut job: Job) {
        job.tries += 1;
        if job.tries > TRIES {
            self.reply(replica, &job, ReportAnswer::Refused(ProblemCode::Conflict));
            return;
        }
        let node = &job.report.node;
        let keys = vec![self.keys.observed(node), self.keys.history(node)];
        self.call(replica, Call::ReportRead { job }, Request::Read { keys });
    }

    pub(super) fn report_read(&mut self, replica: ReplicaNumber, mut job: Job, answer: Answer) {
        let Answer::Read { values, .. } = answer else {
            self.reply(replica, &job, ReportAnswer::Refused(ProblemCode::StoreUnavailable));
            return;
        };
        let status = read(&values);
        match self.decide_report(replica, &job, &status) {
            Ok(StatusMove::Apply(mut applied)) => {
                let txn = std::mem::take(&mut applied.txn);
                job.planned = Some(applied);
                self.call(replica, Call::ReportAlone { job }, Request::Commit(txn));
            }
            Ok(StatusMove::AlreadyApplied) => {
                self.reply(replica, &job, ReportAnswer::Taken(ReportResult::AlreadyApplied))
            }
            Ok(StatusMove::Outdated) => self.reply(replica, &job, ReportAnswer::Taken(ReportResult::Outdated)),
            Err(code) => self.reply(replica, &job, ReportAnswer::Refused(code)),
        }
    }

    pub(super) fn report_committed(&mut self, replica: ReplicaNumber, job: Job, answer: Answer) {
        match answer {
            Answer::Committed { revision } => self.report_taken(replica, job, revision),
            Answer::Refused { .. } | Answer::Failed(Failure::Unknown) => self.read_status(replica, job),
            Answer::Failed(_) | Answer::Read { .. } | Answer::Joined { .. } | Answer::Kept => {
                self.reply(replica, &job, ReportAnswer::Refused(ProblemCode::StoreUnavailable));
            }
        }
    }

    fn report_taken(&mut self, replica: ReplicaNumber, mut job: Job, revision: Revision) {
        if let Some(applied) = job.planned.take() {
            let status = Status { observed: Some((applied.observed, revision)), history: applied.history };
            let node = job.report.node.clone();
            let view = self.replicas[replica].view.as_ref().map(|fleet| fleet.revision).unwrap_or_default();
            if view < revision {
                self.replicas[replica].statuses.insert(node, status);
            }
        }
        self.reply(replica, &job, ReportAnswer::Taken(ReportResult::Applied));
    }

    fn reply(&mut self, replica: ReplicaNumber, job: &Job, answer: ReportAnswer) {
        self.answer_report(replica, job.machine, job.agent, job.ticket, answer);
    }
}

fn read(values: &[Option<KeyValue>]) -> Status {
    let of = |place: usize| values.get(place).and_then(Option::as_ref);
    Status {
        observed: of(0).and_then(|kv| Some((serde_json::from_slice(&kv.value).ok()?, kv.revision))),
        history: of(1).and_then(|kv| serde_json::from_slice(&kv.value).ok()).unwrap_or_default(),
    }
}
