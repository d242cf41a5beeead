//! The simulated store: the model's history behind a faulty network. A request is delayed or lost, its answer is lost,
//! or it commits after its sender got an unknown outcome.

use std::time::Duration;

use muster_core::names::ReplicaId;
use muster_core::replica::ControllerName;
use muster_core::txn::ValuesBefore;
use muster_store::{CommitOutcome, Revision, StoreError, Txn};

use super::checker::Rule;
use super::event::{Event, ReplicaEvent, ReplicaNumber, SimTime, StoreEvent};
use super::faults::Fault;
use super::replica::calls::{Answer, Call, Failure, Request};
use super::world::World;
use crate::model::history::{History, cut};

/// The author of a write. The checker decides whether it was allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A controller, on a server. `before`: the values that it records in the audit as those before its write.
    Controller { name: ControllerName, replica: ReplicaId, before: Option<ValuesBefore> },
    /// An operator, through a server.
    Operator,
    /// A server for itself and its agents.
    Server,
    /// The store itself, when a lease ends.
    Lease,
    /// The set-up of the simulation.
    Setup,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SimStore {
    pub(crate) history: History,
    /// No request is answered before this time: the store elects a leader.
    pub(crate) leaderless_until: Option<SimTime>,
    /// The time when expired leases are revoked next.
    pub(crate) leases_checked: Option<SimTime>,
}

/// A scripted fault of one write of the rollout controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControllerWriteFault {
    /// The server freezes between deciding and sending.
    Frozen {
        pause: Duration,
    },
    /// It commits, and the answer is lost.
    AnswerLost,
    /// It commits this much later, after its sender got an unknown outcome.
    CommittedLate {
        after: Duration,
    },
    RequestLost,
}

/// The fate of a request.
enum Delivery {
    Delivered,
    Fails {
        failure: Failure,
        after: Duration,
    },
    /// It commits after `done_after`. Its sender learns after `answered_after` that the outcome is unknown.
    Unanswered {
        done_after: Duration,
        answered_after: Duration,
    },
}

impl World {
    /// Sends a request of a server to the store.
    pub(crate) fn call(&mut self, replica: ReplicaNumber, call: Call, request: Request) {
        let life = self.replicas[replica].life;
        let mut departs = self.now;
        let fate = self.faults.next_write.take_if(|_| matches!(call, Call::Step { .. }));
        if let Some(ControllerWriteFault::Frozen { pause }) = fate {
            self.count_fault(Fault::FrozenBeforeSending);
            self.freeze(replica, pause);
            departs += pause;
        } else if matches!(request, Request::Commit(_)) && self.fault_occurs(self.faults.rates.frozen_before_sending) {
            let pause = self.random_between(11_000, 25_000);
            self.count_fault(Fault::FrozenBeforeSending);
            self.freeze(replica, pause);
            departs += pause;
        }
        let delivery = fate
            .and_then(|fate| self.scripted_delivery(replica, fate))
            .unwrap_or_else(|| self.random_delivery(replica, &request));
        let writer = self.writer(replica, &call);
        let arrives = departs + self.latency();
        let answered = |call, failure| Event::Replica {
            replica,
            life,
            what: ReplicaEvent::Answered { call, answer: Answer::Failed(failure) },
        };
        match delivery {
            Delivery::Delivered => {
                let event =
                    StoreEvent::Arrives { replica, life, call: Box::new(call), request, writer, answered: true };
                self.queue.schedule(arrives, Event::Store(event));
            }
            Delivery::Fails { failure, after } => self.queue.schedule(departs + after, answered(call, failure)),
            Delivery::Unanswered { done_after, answered_after } => {
                self.queue.schedule(departs + answered_after, answered(call.clone(), Failure::Unknown));
                match request {
                    Request::Commit(txn) => {
                        self.queue
                            .schedule(departs + done_after, Event::Store(StoreEvent::CommittedLate { txn, writer }));
                    }
                    Request::Read { .. } | Request::Join { .. } | Request::KeepAlive { .. } => {
                        let event = StoreEvent::Arrives {
                            replica,
                            life,
                            call: Box::new(call),
                            request,
                            writer,
                            answered: false,
                        };
                        self.queue.schedule(departs + done_after, Event::Store(event));
                    }
                }
            }
        }
    }

    /// The delivery that a script demands.
    fn scripted_delivery(&mut self, replica: ReplicaNumber, fate: ControllerWriteFault) -> Option<Delivery> {
        let answered_after = Duration::from_secs(3);
        match fate {
            ControllerWriteFault::Frozen { .. } => None,
            ControllerWriteFault::AnswerLost => {
                self.count_fault(Fault::AnswerLost);
                self.log_replica(replica, format_args!("its write commits, and the answer is lost"));
                Some(Delivery::Unanswered { done_after: self.latency(), answered_after })
            }
            ControllerWriteFault::CommittedLate { after } => {
                self.count_fault(Fault::CommittedLate);
                self.log_replica(replica, format_args!("its write is delayed by {} s", after.as_secs()));
                Some(Delivery::Unanswered { done_after: after, answered_after })
            }
            ControllerWriteFault::RequestLost => {
                self.count_fault(Fault::RequestLost);
                self.log_replica(replica, format_args!("its write is lost"));
                Some(Delivery::Fails { failure: Failure::Unknown, after: answered_after })
            }
        }
    }

    fn random_delivery(&mut self, replica: ReplicaNumber, request: &Request) -> Delivery {
        let now = self.now;
        if self.replicas[replica].cut_off_until.is_some_and(|until| now < until) {
            return Delivery::Fails { failure: Failure::Unavailable, after: self.random_between(200, 1_000) };
        }
        if self.depot.leaderless_until.is_some_and(|until| now < until) {
            let failure = if self.rng.chance(0.5) { Failure::Unavailable } else { Failure::Unknown };
            return Delivery::Fails { failure, after: self.random_between(500, 3_000) };
        }
        let rates = self.faults.rates;
        let is_commit = matches!(request, Request::Commit(_));
        if self.fault_occurs(rates.not_reached) {
            self.count_fault(Fault::StoreNotReached);
            return Delivery::Fails { failure: Failure::Unavailable, after: self.random_between(50, 1_000) };
        }
        if is_commit && self.fault_occurs(rates.full) {
            self.count_fault(Fault::StoreFull);
            return Delivery::Fails { failure: Failure::Full, after: self.latency() };
        }
        if self.fault_occurs(rates.request_lost) {
            self.count_fault(Fault::RequestLost);
            return Delivery::Fails { failure: Failure::Unknown, after: self.random_between(500, 3_000) };
        }
        if self.fault_occurs(rates.answer_lost) {
            self.count_fault(Fault::AnswerLost);
            return Delivery::Unanswered {
                done_after: self.latency(),
                answered_after: self.random_between(500, 3_000),
            };
        }
        if is_commit && self.fault_occurs(rates.committed_late) {
            self.count_fault(Fault::CommittedLate);
            return Delivery::Unanswered {
                done_after: self.random_between(1_000, 6_000),
                answered_after: self.random_between(100, 2_000),
            };
        }
        Delivery::Delivered
    }

    pub(crate) fn store_event(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Arrives { replica, life, call, request, writer, answered } => {
                let answer = self.serve(request, writer);
                if answered {
                    let at = self.now + self.latency();
                    let what = ReplicaEvent::Answered { call: *call, answer };
                    self.queue.schedule(at, Event::Replica { replica, life, what });
                }
            }
            StoreEvent::CommittedLate { txn, writer } => {
                // The sender has stopped waiting for the answer.
                let _ = self.commit_txn(&txn, writer);
            }
            StoreEvent::LeasesEnd => self.end_leases(),
        }
    }

    fn serve(&mut self, request: Request, writer: Writer) -> Answer {
        match request {
            Request::Commit(txn) => match self.commit_txn(&txn, writer) {
                Ok(CommitOutcome::Committed { revision }) => Answer::Committed { revision },
                Ok(CommitOutcome::Conflict { revision, failed }) => Answer::Refused { revision, failed },
                Err(StoreError::LeaseEnded { .. }) => Answer::Failed(Failure::LeaseEnded),
                Err(_) => Answer::Failed(Failure::Unavailable),
            },
            Request::Read { keys, prefix } => {
                let history = &self.depot.history;
                let values = keys.iter().map(|key| history.now().get(key).cloned()).collect();
                let range = prefix.map(|prefix| cut(history.now(), &prefix)).unwrap_or_default();
                Answer::Read { values, range, revision: history.head() }
            }
            Request::Join { ttl } => {
                let after = self.depot.history.head();
                let lease = self.depot.history.grant(ttl, self.now);
                self.schedule_lease_check();
                Answer::Joined { lease: lease.id, after }
            }
            Request::KeepAlive { lease } => match self.depot.history.keep_alive(lease, self.now) {
                Ok(()) => Answer::Kept,
                Err(_) => Answer::Failed(Failure::LeaseEnded),
            },
        }
    }

    /// Commits a transaction. This is the only place where the store changes: the checker sees each transaction, and
    /// the watches are notified.
    pub(crate) fn commit_txn(&mut self, txn: &Txn, writer: Writer) -> Result<CommitOutcome, StoreError> {
        let before = self.depot.history.head();
        let wrong = self.wrong_value_before(txn, &writer);
        let outcome = self.depot.history.commit(txn)?;
        if self.depot.history.head() > before {
            if let Some(key) = wrong {
                self.checker
                    .report(Rule::AuditBefore, format!("{writer:?} takes another value of {key} for the stored one"));
            }
            self.changed(&writer);
        }
        Ok(outcome)
    }

    /// The first key whose value before the transaction is another one than its writer knows.
    fn wrong_value_before(&self, txn: &Txn, writer: &Writer) -> Option<String> {
        let Writer::Controller { before: Some(known), .. } = writer else { return None };
        let stored = |key: &str| self.depot.history.now().get(key).map(|kv| &kv.value[..]);
        let mut pairs = txn.ops.iter().zip(known);
        let wrong = pairs.find(|(op, known)| stored(op.key()) != known.as_deref());
        wrong.map(|(op, _)| op.key().to_owned())
    }

    fn changed(&mut self, writer: &Writer) {
        let head = self.depot.history.head();
        let changes = self.depot.history.at_revision(head).to_vec();
        self.log_rollout_changes(&changes);
        let seen = super::checker::CommittedTxn { at: self.now, revision: head, changes: &changes, writer };
        self.checker.committed(&seen, &self.blobs.plans);
        self.log_violations();
        if self.fault_occurs(self.faults.rates.compacted) {
            let left = self.rng.below(6);
            self.count_fault(Fault::Compacted);
            // The revision exists, and this cannot fail.
            let _ = self.depot.history.compact(Revision(head.0.saturating_sub(left)));
        }
        for replica in 0..self.replicas.len() {
            self.notify_watch(replica, head);
        }
    }

    /// Ends the expired leases, and schedules the next check.
    fn end_leases(&mut self) {
        while let Some(lease) = self.depot.history.overdue(self.now) {
            self.end_lease(lease);
        }
        self.schedule_lease_check();
    }

    pub(crate) fn end_lease(&mut self, lease: muster_store::LeaseId) {
        let before = self.depot.history.head();
        if self.depot.history.revoke(lease).is_ok() && self.depot.history.head() > before {
            self.log_event(format_args!("store: lease {} expires", lease.0));
            self.changed(&Writer::Lease);
        }
    }

    pub(crate) fn schedule_lease_check(&mut self) {
        if let Some(deadline) = self.depot.history.next_deadline()
            && self.depot.leases_checked.is_none_or(|at| at <= self.now || deadline < at)
        {
            self.depot.leases_checked = Some(deadline);
            self.queue.schedule(deadline, Event::Store(StoreEvent::LeasesEnd));
        }
    }

    pub(crate) fn change_store_leader(&mut self) {
        let length = self.random_between(500, 4_000);
        self.leaderless_for(length);
    }

    /// Extends all leases: a new leader of etcd does not know their remaining time.
    pub(crate) fn leaderless_for(&mut self, length: Duration) {
        self.count_fault(Fault::StoreLeaderChanged);
        let until = self.now + length;
        self.log_event(format_args!("store: elects a leader until {}.{:03}s", until.as_secs(), until.subsec_millis()));
        self.depot.leaderless_until = Some(until);
        self.depot.history.extend_leases(until);
        self.schedule_lease_check();
    }
}
