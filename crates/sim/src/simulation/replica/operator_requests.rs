//! Requests of operators on a server: [`muster_rollout::executor`] decides.

use muster_core::names::EnvName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::{PlanRequest, StartTarget};
use muster_core::rollout::record::PauseReason;
use muster_core::txn::{Revision, Txn};
use muster_rollout::decision::DecisionInput;
use muster_rollout::executor::{
    CommandOutcome, IoResult, NextAction, OperatorCommand, RequestDecision, RequestExecutor, RollBackRollout,
    StartOutcome, StartRollout, StartedRollout,
};
use muster_rollout::start::StartOptions;

use super::calls::{Answer, Call, Request};
use super::host::{IoClient, commit_result};
use crate::simulation::coverage::{DecisionArm, observe};
use crate::simulation::event::ReplicaNumber;
use crate::simulation::operator::{OperatorAction, OperatorActionKind};
use crate::simulation::world::World;

/// A request in progress.
#[derive(Clone, Debug)]
pub(crate) enum RunningRequest {
    Begin(Box<RequestExecutor<StartRollout>>),
    RollBack(Box<RequestExecutor<RollBackRollout>>),
    Command(Box<RequestExecutor<OperatorCommand>>),
    Write(RequestExecutor<PlainWrite>),
}

/// A write that concerns no rollout.
#[derive(Clone, Debug)]
pub(crate) struct PlainWrite(Txn);

impl muster_rollout::executor::OperatorRequest for PlainWrite {
    type Outcome = Revision;
    type Error = String;
    const MAX_TRIES: usize = 6;

    fn decide(&mut self, input: &DecisionInput<'_>, _: IoResult, _: bool) -> Result<RequestDecision<Revision>, String> {
        Ok(RequestDecision::Write(self.0.clone(), input.fleet.revision))
    }

    fn committed_at(_: Revision, revision: Revision) -> Revision {
        revision
    }

    fn contended(&self, _: &EnvName) -> String {
        "too many conflicts with concurrent writes".into()
    }
}

impl RunningRequest {
    /// Continues with the result of the last action. `arms` gets the decision once there is one.
    fn next(
        &mut self,
        command: &OperatorActionKind,
        input: &DecisionInput<'_>,
        io: IoResult,
        arms: &mut Vec<DecisionArm>,
    ) -> Result<NextAction<Txn, String>, String> {
        match self {
            RunningRequest::Begin(request) => {
                let next = request.next(input, io);
                arms.extend(decided(&next).map(observe::of_start));
                describe(next, |outcome| match outcome {
                    StartOutcome::Started(it) => begun(it),
                    StartOutcome::NoOp(there) => answer(false, there.revision),
                })
            }
            RunningRequest::RollBack(request) => {
                let next = request.next(input, io);
                arms.extend(decided(&next).map(observe::of_rollback_request));
                describe(next, begun)
            }
            RunningRequest::Command(request) => {
                let next = request.next(input, io);
                if let OperatorActionKind::Operate(command) = command {
                    arms.extend(decided(&next).map(|result| observe::of_command(command, result)));
                }
                describe(next, |CommandOutcome { changed, revision, .. }| answer(changed, revision))
            }
            RunningRequest::Write(request) => describe(request.next(input, io), |revision| answer(true, revision)),
        }
    }
}

/// The outcome or error of a request that has ended.
fn decided<D, E>(next: &Result<NextAction<Txn, D>, E>) -> Option<Result<&D, &E>> {
    match next {
        Ok(NextAction::Done(outcome)) => Some(Ok(outcome)),
        Ok(NextAction::Io(_) | NextAction::Commit(_)) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Turns the outcome into the answer that the operator gets.
fn describe<D, E: ToString>(
    next: Result<NextAction<Txn, D>, E>,
    done: impl FnOnce(D) -> String,
) -> Result<NextAction<Txn, String>, String> {
    match next {
        Ok(NextAction::Io(request)) => Ok(NextAction::Io(request)),
        Ok(NextAction::Commit(txn)) => Ok(NextAction::Commit(txn)),
        Ok(NextAction::Done(what)) => Ok(NextAction::Done(done(what))),
        Err(why) => Err(why.to_string()),
    }
}

fn begun(StartedRollout { changed, revision, .. }: StartedRollout) -> String {
    answer(changed, revision)
}

fn answer(changed: bool, revision: Revision) -> String {
    if changed { format!("done at revision {revision}") } else { "no change".into() }
}

impl World {
    pub(super) fn operator_action_arrives(&mut self, replica: ReplicaNumber, action: OperatorAction) {
        let fleet = self.replicas[replica].view.as_ref();
        let active = fleet.and_then(|fleet| fleet.active_rollout_pointer()).map(|(active, _)| active.id);
        let Some((running, first)) = running_request(&action, active) else {
            self.log_replica(replica, format_args!("{action}: refused: there is no rollout"));
            return;
        };
        let number = action.number;
        self.replicas[replica].requests.insert(number, (action, running));
        self.request_io(replica, IoClient::Request(number), first);
    }

    pub(super) fn continue_request(&mut self, replica: ReplicaNumber, number: u64, io: IoResult) {
        let Some((action, mut running)) = self.replicas[replica].requests.remove(&number) else { return };
        let mut arms = Vec::new();
        let next = self.with_input(replica, |input, world| {
            let mut next = running.next(&action.kind, input, io, &mut arms);
            while let Ok(NextAction::Io(request)) = &next
                && let Some(io) = world.available_io(replica, input.fleet.revision, request)
            {
                next = running.next(&action.kind, input, io, &mut arms);
            }
            next
        });
        self.record_arms(arms);
        match next {
            None => {}
            Some(Ok(NextAction::Done(answer))) => self.log_replica(replica, format_args!("{action}: {answer}")),
            Some(Err(why)) => self.log_replica(replica, format_args!("{action}: refused: {why}")),
            Some(Ok(NextAction::Commit(txn))) => {
                self.replicas[replica].requests.insert(number, (action, running));
                self.call(replica, Call::Request { number }, Request::Commit(txn));
            }
            Some(Ok(NextAction::Io(request))) => {
                self.replicas[replica].requests.insert(number, (action, running));
                self.request_io(replica, IoClient::Request(number), request);
            }
        }
    }

    pub(super) fn request_committed(&mut self, replica: ReplicaNumber, number: u64, answer: &Answer) {
        match commit_result(answer) {
            Some(result) => self.continue_request(replica, number, IoResult::Commit(result)),
            None => self.request_failed(replica, number),
        }
    }

    pub(super) fn request_failed(&mut self, replica: ReplicaNumber, number: u64) {
        if let Some((action, _)) = self.replicas[replica].requests.remove(&number) {
            self.log_replica(replica, format_args!("{action}: the store does not answer"));
        }
    }
}

/// Starts a request, with its first IO request. Commands go to the active rollout.
fn running_request(
    action: &OperatorAction,
    active: Option<RolloutId>,
) -> Option<(RunningRequest, muster_rollout::executor::IoRequest)> {
    let who = |supersede| StartOptions { request: action.request(), by: action.by.clone(), supersede };
    Some(match &action.kind {
        OperatorActionKind::Start { to, at_once, supersede, .. } => {
            let wanted = PlanRequest { at_once: *at_once, ..PlanRequest::to(to.clone()) };
            let (request, first) = RequestExecutor::new(StartRollout::new(StartTarget::Now(wanted), who(*supersede)));
            (RunningRequest::Begin(Box::new(request)), first)
        }
        OperatorActionKind::StartPlan(plan) => {
            let (request, first) = RequestExecutor::new(StartRollout::new(StartTarget::Plan(plan.clone()), who(false)));
            (RunningRequest::Begin(Box::new(request)), first)
        }
        OperatorActionKind::Operate(command) => {
            let (request, first) = RequestExecutor::new(OperatorCommand {
                id: active?,
                command: command.clone(),
                by: action.by.clone(),
                request: action.request(),
            });
            (RunningRequest::Command(Box::new(request)), first)
        }
        OperatorActionKind::RollBack => {
            let why = PauseReason::by_operator(action.by.clone(), "");
            // Rollbacks of rollbacks must follow all rules too.
            let (request, first) = RequestExecutor::new(RollBackRollout::new(active?, who(false), why).undoing(true));
            (RunningRequest::RollBack(Box::new(request)), first)
        }
        OperatorActionKind::Write(txn) => {
            let (request, first) = RequestExecutor::new(PlainWrite(txn.clone()));
            (RunningRequest::Write(request), first)
        }
    })
}
