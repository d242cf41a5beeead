//! Performs the IO of the rollout engine in virtual time: reads and writes have latencies, and the server may crash in
//! between. It decides nothing.

use std::sync::Arc;
use std::time::Duration;

use muster_core::txn::Revision;
use muster_rollout::executor::{CommitResult, IoRequest, IoResult, RolloutConfig};
use muster_rollout::step::IndexedPlan;

use super::calls::{Answer, Call, Failure, Request};
use crate::simulation::event::{Event, ReplicaEvent, ReplicaNumber};
use crate::simulation::operator::OperatorActionKind;
use crate::simulation::world::World;

/// The time limit of a wait for the view, as in the server.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The receiver of an IO result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoClient {
    /// A reconciliation of the controller. Results for a dropped one are ignored.
    Reconcile(u64),
    /// A request of an operator.
    Request(u64),
}

impl World {
    /// The result of an IO request that needs no waiting.
    pub(super) fn available_io(&self, replica: ReplicaNumber, view: Revision, request: &IoRequest) -> Option<IoResult> {
        match request {
            IoRequest::AwaitView(revision) => (view >= *revision).then_some(IoResult::ViewReached),
            IoRequest::LoadPlan(digest) => {
                let was_read = self.replicas[replica].plans.contains(digest);
                self.blobs.plans.get(digest).filter(|_| was_read).map(|plan| IoResult::Plan(Ok(plan.clone())))
            }
            IoRequest::StoreRevision
            | IoRequest::LoadConfig { .. }
            | IoRequest::SavePlan(_)
            | IoRequest::SaveOutcome(_) => None,
        }
    }

    /// Schedules an IO request.
    pub(super) fn request_io(&mut self, replica: ReplicaNumber, who: IoClient, request: IoRequest) {
        let life = self.replicas[replica].life;
        match request {
            IoRequest::StoreRevision => self.call(replica, Call::Newest { who }, Request::revision()),
            IoRequest::AwaitView(revision) => {
                self.replicas[replica].watch.waiters.push((revision, who));
                let what = ReplicaEvent::ViewWaitExpired { who, revision };
                self.queue.schedule(self.now + TIMEOUT, Event::Replica { replica, life, what });
            }
            IoRequest::LoadPlan(_)
            | IoRequest::LoadConfig { .. }
            | IoRequest::SavePlan(_)
            | IoRequest::SaveOutcome(_) => {
                let takes = self.random_between(1, 40);
                let what = ReplicaEvent::PerformIo { who, request: Box::new(request) };
                self.queue.schedule(self.now + takes, Event::Replica { replica, life, what });
            }
        }
    }

    /// Performs an IO request. Writes take effect even if the server crashes.
    pub(super) fn perform_io(&mut self, replica: ReplicaNumber, who: IoClient, request: IoRequest) {
        let io = match request {
            IoRequest::LoadPlan(digest) => {
                match self.blobs.plans.get(&digest).filter(|_| !self.blobs.plans_missing).cloned() {
                    Some(plan) => {
                        self.replicas[replica].plans.insert(digest);
                        IoResult::Plan(Ok(plan))
                    }
                    None => IoResult::Plan(Err(format!("its plan (blob {digest}) is missing or damaged"))),
                }
            }
            IoRequest::LoadConfig { .. } => IoResult::Config(Box::new(self.rollout_config(replica, who))),
            IoRequest::SavePlan(plan) => match serde_json::to_vec(&*plan) {
                Ok(text) => {
                    let name = name_of("plan", &text);
                    self.blobs.plans.insert(name.clone(), Arc::new(IndexedPlan::new((*plan).clone())));
                    self.replicas[replica].plans.insert(name.clone());
                    IoResult::PlanSaved(name)
                }
                Err(_) => return self.io_failed(replica, who),
            },
            IoRequest::SaveOutcome(stood) => {
                let name = serde_json::to_vec(&stood).ok().map(|text| name_of("outcome", &text));
                self.blobs.outcomes.extend(name.clone());
                IoResult::OutcomeSaved(name)
            }
            IoRequest::StoreRevision | IoRequest::AwaitView(_) => return self.request_io(replica, who, request),
        };
        self.io_done(replica, who, io);
    }

    /// The environment's configuration. It is applied before each start.
    fn rollout_config(&self, replica: ReplicaNumber, who: IoClient) -> RolloutConfig {
        let action = match who {
            IoClient::Request(number) => self.replicas[replica].requests.get(&number).map(|(action, _)| &action.kind),
            IoClient::Reconcile(_) => None,
        };
        let strategy = match action {
            Some(OperatorActionKind::Start { strategy, .. }) => Some((**strategy).clone()),
            Some(OperatorActionKind::StartPlan(plan)) => Some(plan.strategy.clone()),
            Some(OperatorActionKind::Operate(_) | OperatorActionKind::RollBack | OperatorActionKind::Write(_))
            | None => None,
        };
        RolloutConfig { strategy, after: self.design.after.clone(), design: None }
    }

    /// Continues with the result of an IO request.
    pub(super) fn io_done(&mut self, replica: ReplicaNumber, who: IoClient, io: IoResult) {
        match who {
            IoClient::Reconcile(number) => self.continue_reconcile(replica, number, io),
            IoClient::Request(number) => self.continue_request(replica, number, io),
        }
    }

    /// The IO request failed.
    pub(super) fn io_failed(&mut self, replica: ReplicaNumber, who: IoClient) {
        match who {
            IoClient::Reconcile(number) => self.reconcile_failed(replica, number),
            IoClient::Request(number) => self.request_failed(replica, number),
        }
    }

    pub(super) fn newest_read(&mut self, replica: ReplicaNumber, who: IoClient, answer: &Answer) {
        match answer {
            Answer::Read { revision, .. } => self.io_done(replica, who, IoResult::StoreRevision(*revision)),
            Answer::Failed(_)
            | Answer::Committed { .. }
            | Answer::Refused { .. }
            | Answer::Joined { .. }
            | Answer::Kept => self.io_failed(replica, who),
        }
    }

    /// Continues everything that waits for this revision of the view.
    pub(super) fn view_reached(&mut self, replica: ReplicaNumber, view: Revision) {
        let view_waiters = std::mem::take(&mut self.replicas[replica].watch.waiters);
        let (reached, rest) = view_waiters.into_iter().partition(|(revision, _)| *revision <= view);
        self.replicas[replica].watch.waiters = rest;
        let reached: Vec<(Revision, IoClient)> = reached;
        for (_, who) in reached {
            self.io_done(replica, who, IoResult::ViewReached);
        }
    }

    pub(super) fn view_wait_expired(&mut self, replica: ReplicaNumber, who: IoClient, revision: Revision) {
        let view_waiters = &mut self.replicas[replica].watch.waiters;
        if let Some(place) = view_waiters.iter().position(|waiting| *waiting == (revision, who)) {
            view_waiters.remove(place);
            self.io_failed(replica, who);
        }
    }
}

/// The commit result of an answer; none if the write has not committed and never will.
pub(super) fn commit_result(answer: &Answer) -> Option<CommitResult> {
    match answer {
        Answer::Committed { revision } => Some(CommitResult::Committed(*revision)),
        Answer::Refused { revision, .. } => Some(CommitResult::Conflict(*revision)),
        Answer::Failed(Failure::Unknown) => Some(CommitResult::Unknown),
        Answer::Failed(Failure::Unavailable | Failure::Full | Failure::LeaseEnded)
        | Answer::Read { .. }
        | Answer::Joined { .. }
        | Answer::Kept => None,
    }
}

/// The name of a blob.
fn name_of(kind: &str, text: &[u8]) -> String {
    let hash = text
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{kind}-{hash:016x}")
}
