//! The one store of the world: the model's history, with the network before it. A request arrives late, or not at all; its
//! answer is lost; it is carried out after its sender was told that nobody knows.

use std::time::Duration;

use muster_core::names::ReplicaId;
use muster_core::replica::ControllerName;
use muster_store::{CommitOutcome, Revision, StoreError, Txn};

use super::agenda::Moment;
use super::event::{Event, ReplicaEvent, ReplicaNumber, StoreEvent};
use super::mishap::Mishap;
use super::replica::calls::{Answer, Call, Failure, Request};
use super::world::World;
use crate::history::History;

/// In whose name something is written; for the judge, who asks whether they may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A controller, at a server.
    Controller { name: ControllerName, replica: ReplicaId },
    /// A person, through a server.
    Operator,
    /// A server for itself and for its agents.
    Server,
    /// The store itself: a lease has ended.
    Lease,
    /// Whoever made the world.
    Founder,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Depot {
    pub(crate) history: History,
    /// Nobody is answered before then: the store looks for a leader.
    pub(crate) leaderless_until: Option<Moment>,
}

/// What becomes of one write of the rollout controller, where a script says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepFate {
    /// Its server freezes between deciding and sending.
    Frozen {
        pause: Duration,
    },
    /// It is carried out, and its sender never hears of it.
    AnswerLost,
    /// It is carried out this much later, when its sender has long been told that nobody knows.
    DoneLater {
        after: Duration,
    },
    RequestLost,
}

/// What becomes of a request.
enum Way {
    Through,
    Fails {
        failure: Failure,
        after: Duration,
    },
    /// It is carried out this much later, and its sender hears this much later that nobody knows.
    InTheDark {
        done: Duration,
        told: Duration,
    },
}

impl World {
    /// Sends a request of a server to the store.
    pub(crate) fn call(&mut self, replica: ReplicaNumber, call: Call, request: Request) {
        let life = self.replicas[replica].life;
        let mut departs = self.now;
        let fate = self.next_step.take_if(|_| matches!(call, Call::Step { .. }));
        if let Some(StepFate::Frozen { pause }) = fate {
            self.mishap(Mishap::FrozenBeforeSending);
            self.freeze(replica, pause);
            departs += pause;
        } else if matches!(request, Request::Commit(_)) && self.may_go_wrong(self.odds.frozen_before_sending) {
            let pause = self.between(11_000, 25_000);
            self.mishap(Mishap::FrozenBeforeSending);
            self.freeze(replica, pause);
            departs += pause;
        }
        let way = fate.and_then(|fate| self.fated(replica, fate)).unwrap_or_else(|| self.way(replica, &request));
        let writer = self.writer(replica, &call);
        let arrives = departs + self.travel();
        let answered = |call, failure| Event::Replica {
            replica,
            life,
            what: ReplicaEvent::Answered { call, answer: Answer::Failed(failure) },
        };
        match way {
            Way::Through => {
                let event =
                    StoreEvent::Arrives { replica, life, call: Box::new(call), request, writer, answered: true };
                self.agenda.put(arrives, Event::Store(event));
            }
            Way::Fails { failure, after } => self.agenda.put(departs + after, answered(call, failure)),
            Way::InTheDark { done, told } => {
                self.agenda.put(departs + told, answered(call.clone(), Failure::Unknown));
                match request {
                    Request::Commit(txn) => {
                        self.agenda.put(departs + done, Event::Store(StoreEvent::DoneLater { txn, writer }));
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
                        self.agenda.put(departs + done, Event::Store(event));
                    }
                }
            }
        }
    }

    /// What a script says becomes of a write.
    fn fated(&mut self, replica: ReplicaNumber, fate: StepFate) -> Option<Way> {
        let told = Duration::from_secs(3);
        match fate {
            StepFate::Frozen { .. } => None,
            StepFate::AnswerLost => {
                self.mishap(Mishap::AnswerLost);
                self.server_says(replica, format_args!("what it writes arrives, and the answer is lost"));
                Some(Way::InTheDark { done: self.travel(), told })
            }
            StepFate::DoneLater { after } => {
                self.mishap(Mishap::DoneLater);
                self.server_says(
                    replica,
                    format_args!("what it writes is held up on its way for {} s", after.as_secs()),
                );
                Some(Way::InTheDark { done: after, told })
            }
            StepFate::RequestLost => {
                self.mishap(Mishap::RequestLost);
                self.server_says(replica, format_args!("what it writes is lost on its way"));
                Some(Way::Fails { failure: Failure::Unknown, after: told })
            }
        }
    }

    fn way(&mut self, replica: ReplicaNumber, request: &Request) -> Way {
        let now = self.now;
        if self.replicas[replica].cut_off_until.is_some_and(|until| now < until) {
            return Way::Fails { failure: Failure::Unavailable, after: self.between(200, 1_000) };
        }
        if self.depot.leaderless_until.is_some_and(|until| now < until) {
            let failure = if self.dice.chance(0.5) { Failure::Unavailable } else { Failure::Unknown };
            return Way::Fails { failure, after: self.between(500, 3_000) };
        }
        let odds = self.odds;
        let is_commit = matches!(request, Request::Commit(_));
        if self.may_go_wrong(odds.not_reached) {
            self.mishap(Mishap::StoreNotReached);
            return Way::Fails { failure: Failure::Unavailable, after: self.between(50, 1_000) };
        }
        if is_commit && self.may_go_wrong(odds.full) {
            self.mishap(Mishap::StoreFull);
            return Way::Fails { failure: Failure::Full, after: self.travel() };
        }
        if self.may_go_wrong(odds.request_lost) {
            self.mishap(Mishap::RequestLost);
            return Way::Fails { failure: Failure::Unknown, after: self.between(500, 3_000) };
        }
        if self.may_go_wrong(odds.answer_lost) {
            self.mishap(Mishap::AnswerLost);
            return Way::InTheDark { done: self.travel(), told: self.between(500, 3_000) };
        }
        if is_commit && self.may_go_wrong(odds.done_later) {
            self.mishap(Mishap::DoneLater);
            return Way::InTheDark { done: self.between(1_000, 6_000), told: self.between(100, 2_000) };
        }
        Way::Through
    }

    pub(crate) fn store_event(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Arrives { replica, life, call, request, writer, answered } => {
                let answer = self.serve(request, writer);
                if answered {
                    let at = self.now + self.travel();
                    let what = ReplicaEvent::Answered { call: *call, answer };
                    self.agenda.put(at, Event::Replica { replica, life, what });
                }
            }
            StoreEvent::DoneLater { txn, writer } => {
                // Whoever sent it has stopped waiting: the answer is nobody's.
                let _ = self.carry_out(&txn, writer);
            }
            StoreEvent::LeasesEnd => self.end_leases(),
        }
    }

    fn serve(&mut self, request: Request, writer: Writer) -> Answer {
        match request {
            Request::Commit(txn) => match self.carry_out(&txn, writer) {
                Ok(CommitOutcome::Committed { revision }) => Answer::Committed { revision },
                Ok(CommitOutcome::Conflict { revision, failed }) => Answer::Refused { revision, failed },
                Err(StoreError::LeaseEnded { .. }) => Answer::Failed(Failure::LeaseEnded),
                Err(_) => Answer::Failed(Failure::Unavailable),
            },
            Request::Read { keys } => {
                let history = &self.depot.history;
                let values = keys.iter().map(|key| history.now().get(key).cloned()).collect();
                Answer::Read { values, revision: history.head() }
            }
            Request::Join { ttl } => {
                let after = self.depot.history.head();
                let lease = self.depot.history.grant(ttl, self.now);
                self.look_at_leases();
                Answer::Joined { lease: lease.id, after }
            }
            Request::KeepAlive { lease } => match self.depot.history.keep_alive(lease, self.now) {
                Ok(()) => Answer::Kept,
                Err(_) => Answer::Failed(Failure::LeaseEnded),
            },
        }
    }

    /// The one place in which the store changes: the judge sees each transaction with what it compared, and the watches are
    /// told.
    pub(crate) fn carry_out(&mut self, txn: &Txn, writer: Writer) -> Result<CommitOutcome, StoreError> {
        let before = self.depot.history.head();
        let outcome = self.depot.history.commit(txn)?;
        if self.depot.history.head() > before {
            self.changed(&writer);
        }
        Ok(outcome)
    }

    fn changed(&mut self, writer: &Writer) {
        let head = self.depot.history.head();
        let changes = self.depot.history.at_revision(head).to_vec();
        self.narrate(&changes);
        let seen = super::judge::Committed { at: self.now, revision: head, changes: &changes, writer };
        self.judge.committed(&seen, &self.blobs);
        self.tell_of_violations();
        if self.may_go_wrong(self.odds.compacted) {
            let left = self.dice.below(6);
            self.mishap(Mishap::Compacted);
            // It cannot fail: the revision is one that was.
            let _ = self.depot.history.compact(Revision(head.0.saturating_sub(left)));
        }
        for replica in 0..self.replicas.len() {
            self.tell(replica, head);
        }
    }

    /// Ends the leases whose time is over, and looks again when the next is.
    fn end_leases(&mut self) {
        while let Some(lease) = self.depot.history.overdue(self.now) {
            self.end_lease(lease);
        }
        self.look_at_leases();
    }

    pub(crate) fn end_lease(&mut self, lease: muster_store::LeaseId) {
        let before = self.depot.history.head();
        if self.depot.history.revoke(lease).is_ok() && self.depot.history.head() > before {
            self.say(format_args!("store: lease {} ends", lease.0));
            self.changed(&Writer::Lease);
        }
    }

    pub(crate) fn look_at_leases(&mut self) {
        if let Some(deadline) = self.depot.history.next_deadline()
            && self.leases_looked_at.is_none_or(|at| at <= self.now || deadline < at)
        {
            self.leases_looked_at = Some(deadline);
            self.agenda.put(deadline, Event::Store(StoreEvent::LeasesEnd));
        }
    }

    pub(crate) fn change_store_leader(&mut self) {
        let length = self.between(500, 4_000);
        self.leaderless_for(length);
    }

    /// All leases begin anew: a new leader of etcd does not know how long they have to live.
    pub(crate) fn leaderless_for(&mut self, length: Duration) {
        self.mishap(Mishap::StoreLeaderChanged);
        let until = self.now + length;
        self.say(format_args!("store: looks for a leader until {}.{:03}s", until.as_secs(), until.subsec_millis()));
        self.depot.leaderless_until = Some(until);
        self.depot.history.extend_leases(until);
        self.look_at_leases();
    }
}
