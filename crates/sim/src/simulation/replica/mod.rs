//! One server: its view, its lease, its controller locks, and its connected agents. Core and the rollout engine decide;
//! this performs their IO in virtual time.

pub(crate) mod calls;
mod host;
mod membership;
mod operator_requests;
mod presence;
pub(crate) mod reports;
mod rollouts;
mod sessions;
pub(crate) mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::names::{NodeName, ReplicaId};
use muster_core::replica::ControllerName;
use muster_core::replica::controller_lock::{ControllerLock, ReplicaLease};
use muster_core::replica::links::LinkTracker;
use muster_core::replica::presence::EndedCall;
use muster_core::txn::{LeaseId, Revision};
use muster_rollout::decision::ObservationAge;

use super::event::{Event, ReplicaEvent, ReplicaNumber, SessionNumber, SimTime};
use super::faults::Fault;
use super::operator::OperatorAction;
use super::store::Writer;
use super::world::World;
use calls::{Answer, Call};
use operator_requests::RunningRequest;
use presence::Links;
use reports::ReportIntake;
use rollouts::Rollouts;
use sessions::{Connection, Snapshots};

pub(crate) use host::IoClient;
pub(crate) use view::apply_changes;

#[derive(Clone, Debug)]
pub(crate) struct Replica {
    /// Differs for each start.
    pub(crate) id: ReplicaId,
    pub(crate) life: u64,
    pub(crate) up: bool,
    pub(crate) frozen_until: Option<SimTime>,
    /// Cut off from the store until then.
    pub(crate) cut_off_until: Option<SimTime>,
    /// The error of its clock.
    pub(crate) skew: SignedDuration,
    /// None until it has read all keys.
    pub(crate) view: Option<Fleet>,
    watch: ViewWatch,
    lease: LeaseState,
    locks: LockState,
    agents: AgentLinks,
    snapshots: Snapshots,
    chores: TaskSchedule,
    reports: ReportIntake,
    pub(crate) rollouts: Rollouts,
    /// Requests of operators, by action number.
    requests: BTreeMap<u64, (OperatorAction, RunningRequest)>,
    /// Plans that it has read and cached.
    plans: BTreeSet<String>,
}

/// The watch that keeps a server's view up to date.
#[derive(Clone, Debug, Default)]
struct ViewWatch {
    /// Incremented with each gap.
    number: u64,
    /// No changes arrive before this time.
    until: SimTime,
    /// The time for which the server has observed each revision.
    ages: ObservationAge,
    /// IO requests that wait for a revision of the view.
    waiters: Vec<(Revision, IoClient)>,
}

#[derive(Clone, Debug, Default)]
struct LeaseState {
    current: Option<ReplicaLease>,
    /// The earliest expiry of the lease, counted from the last keep-alive.
    good_until: SimTime,
}

/// Controller locks that a server holds, was refused, and is acquiring.
#[derive(Clone, Debug, Default)]
struct LockState {
    held: BTreeMap<ControllerName, ControllerLock>,
    refused: BTreeMap<ControllerName, (LeaseId, Revision)>,
    taking: BTreeSet<ControllerName>,
}

/// Agents that are connected to a server, and what it knows of those at other servers.
#[derive(Clone, Debug)]
struct AgentLinks {
    connections: BTreeMap<NodeName, Connection>,
    silent_since: BTreeMap<NodeName, Timestamp>,
    ended_calls: HashMap<NodeName, EndedCall>,
    listening_since: Timestamp,
    absences: Option<LinkTracker>,
    links: Links,
    presence_under_way: bool,
    liveness_under_way: u32,
}

impl Replica {
    pub(crate) fn new(number: ReplicaNumber, life: u64, skew: SignedDuration, now: Timestamp) -> Self {
        Self {
            id: id(number, life),
            life,
            up: true,
            frozen_until: None,
            cut_off_until: None,
            skew,
            view: None,
            watch: ViewWatch::default(),
            lease: LeaseState::default(),
            locks: LockState::default(),
            agents: AgentLinks {
                connections: BTreeMap::new(),
                silent_since: BTreeMap::new(),
                ended_calls: HashMap::new(),
                listening_since: now,
                absences: None,
                links: Links::default(),
                presence_under_way: false,
                liveness_under_way: 0,
            },
            snapshots: Snapshots::default(),
            chores: TaskSchedule::default(),
            reports: ReportIntake::default(),
            rollouts: Rollouts::default(),
            requests: BTreeMap::new(),
            plans: BTreeSet::new(),
        }
    }

    /// The lease, if it is certainly valid.
    pub(crate) fn current(&self, now: SimTime) -> Option<ReplicaLease> {
        self.lease.current.filter(|_| now < self.lease.good_until)
    }

    /// A controller lock, if this server holds it and may act.
    pub(crate) fn held(&self, name: ControllerName, now: SimTime) -> Option<&ControllerLock> {
        let current = self.current(now)?;
        self.locks.held.get(&name).filter(|held| held.lease == current.lease)
    }

    pub(crate) fn is_frozen(&self, now: SimTime) -> bool {
        self.frozen_until.is_some_and(|until| now < until)
    }
}

/// The id of a server process. Its suffix identifies the life.
fn id(number: ReplicaNumber, life: u64) -> ReplicaId {
    match ReplicaId::new(format!("ctl{}-{life:06x}", number + 1)) {
        Ok(id) => id,
        // Letters, digits and one `-`, within the length limit.
        Err(error) => unreachable!("{error}"),
    }
}

impl World {
    /// The time on a server's clock.
    pub(crate) fn clock_of(&self, replica: ReplicaNumber) -> Timestamp {
        let right = self.timestamp(self.now);
        right.saturating_add(self.replicas[replica].skew).unwrap_or(right)
    }

    pub(crate) fn start_replica(&mut self, replica: ReplicaNumber) {
        let (life, skew) = (self.replicas[replica].life + 1, self.replicas[replica].skew);
        let fresh = Replica::new(replica, life, skew, self.clock_of(replica));
        self.replicas[replica] = fresh;
        self.log_replica(replica, format_args!("starts"));
        self.schedule_task(replica, ReplicaTask::Rebuild, self.now);
        self.schedule_task(replica, ReplicaTask::Join, self.now);
    }

    pub(crate) fn crash_replica(&mut self, replica: ReplicaNumber, back_after: SimTime) {
        self.log_replica(replica, format_args!("crashes"));
        self.count_fault(Fault::ReplicaCrashed);
        self.checker.replica_lost(&self.replicas[replica].id, self.now);
        self.replicas[replica].up = false;
        self.replicas[replica].view = None;
        let sessions: Vec<SessionNumber> = self.sessions_at(replica);
        for session in sessions {
            self.close_replica_end(session);
            self.notify_agent_of_loss(session);
        }
        let life = self.replicas[replica].life;
        self.queue.schedule(self.now + back_after, Event::ReplicaStarts { replica, life });
    }

    /// Freezes a server. Its events are handled when it thaws.
    pub(crate) fn freeze(&mut self, replica: ReplicaNumber, pause: SimTime) {
        let until = self.now + pause;
        self.log_replica(replica, format_args!("freezes for {} ms", pause.as_millis()));
        self.checker.replica_lost(&self.replicas[replica].id, self.now);
        self.replicas[replica].frozen_until = Some(until);
        let silence = self.silence();
        for session in self.sessions_at(replica) {
            if pause > silence {
                self.queue.schedule(self.now + silence, Event::StreamTimedOut { session });
            }
        }
    }

    pub(crate) fn replica_event(&mut self, replica: ReplicaNumber, what: ReplicaEvent) {
        match what {
            ReplicaEvent::WatchNotified { watch, upto } => self.watch_notified(replica, watch, upto),
            ReplicaEvent::Answered { call, answer } => self.answered(replica, call, answer),
            ReplicaEvent::Due(chore) => self.run_task(replica, chore),
            ReplicaEvent::Opened { session, open } => self.opened(replica, session, open),
            ReplicaEvent::ActivityReported { session, activity } => self.activity_reported(replica, session, activity),
            ReplicaEvent::Reported { machine, agent, ticket, report } => {
                self.report_arrives(replica, machine, agent, ticket, report);
            }
            ReplicaEvent::SessionLost { session } => self.connection_lost(replica, session),
            ReplicaEvent::Pings { session } => self.ping(replica, session),
            ReplicaEvent::OperatorAction(action) => self.operator_action_arrives(replica, action),
            ReplicaEvent::PerformIo { who, request } => self.perform_io(replica, who, *request),
            ReplicaEvent::ViewWaitExpired { who, revision } => self.view_wait_expired(replica, who, revision),
            ReplicaEvent::CatchUpEnds { request, revision } => self.catch_up_ends(replica, request, revision),
            ReplicaEvent::GateChecked(request) => self.gate_checked(replica, *request),
        }
    }

    fn answered(&mut self, replica: ReplicaNumber, call: Call, answer: Answer) {
        match call {
            Call::Join { sent } => self.joined(replica, sent, answer),
            Call::KeepAlive { lease, sent } => self.kept(replica, lease, sent, answer),
            Call::Register => self.placed(replica, answer),
            Call::TakeLock { name, lease } => self.taken(replica, name, lease, answer),
            Call::AssignIncarnation { session, open, incarnation, tries } => {
                self.incarnation_assigned(replica, session, open, incarnation, tries, answer);
            }
            Call::RetryIncarnation { session, open, tries } => {
                self.retry_incarnation(replica, session, open, tries, answer)
            }
            Call::ReportCommit { request } => self.report_committed(replica, request, answer),
            Call::ReportRead { request } => self.report_read(replica, request, answer),
            Call::Presence => self.presence_written(replica, answer),
            Call::Liveness { held } => self.liveness_written(replica, held, answer),
            Call::Newest { who } => self.newest_read(replica, who, &answer),
            Call::Step { held, reconcile, .. } => self.stepped(replica, held, reconcile, &answer),
            Call::Request { number } => self.request_committed(replica, number, &answer),
        }
    }

    /// The author of a call's writes.
    pub(crate) fn writer(&self, replica: ReplicaNumber, call: &Call) -> Writer {
        let id = || self.replicas[replica].id.clone();
        match call {
            Call::Liveness { .. } => Writer::Controller { name: ControllerName::Liveness, replica: id(), before: None },
            Call::Step { before, .. } => {
                Writer::Controller { name: ControllerName::Rollout, replica: id(), before: before.clone() }
            }
            Call::Request { .. } => Writer::Operator,
            Call::Join { .. }
            | Call::KeepAlive { .. }
            | Call::Register
            | Call::TakeLock { .. }
            | Call::AssignIncarnation { .. }
            | Call::RetryIncarnation { .. }
            | Call::ReportCommit { .. }
            | Call::ReportRead { .. }
            | Call::Presence
            | Call::Newest { .. } => Writer::Server,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReplicaTask {
    Join,
    KeepLease,
    /// Write its own key if it is missing.
    Register,
    ControllerLocks,
    Presence,
    Liveness,
    Rollout,
    /// Read all keys again after a lost watch.
    Rebuild,
}

/// The due time of each task. A task is scheduled once.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskSchedule(BTreeMap<ReplicaTask, SimTime>);

impl TaskSchedule {
    pub(super) fn is_due(&self, chore: ReplicaTask, until: SimTime) -> bool {
        self.0.get(&chore).is_some_and(|at| *at <= until)
    }
}

impl World {
    /// Schedules a task, unless it is due earlier anyway.
    pub(crate) fn schedule_task(&mut self, replica: ReplicaNumber, chore: ReplicaTask, at: SimTime) {
        let known = self.replicas[replica].chores.0.get(&chore).copied();
        if known.is_some_and(|known| known <= at) {
            return;
        }
        self.replicas[replica].chores.0.insert(chore, at);
        let life = self.replicas[replica].life;
        self.queue.schedule(at, Event::Replica { replica, life, what: ReplicaEvent::Due(chore) });
    }

    pub(crate) fn run_task(&mut self, replica: ReplicaNumber, chore: ReplicaTask) {
        let chores = &mut self.replicas[replica].chores.0;
        match chores.get(&chore) {
            // It was moved to an earlier time, and is done.
            None => return,
            Some(at) if *at > self.now => return,
            Some(_) => chores.remove(&chore),
        };
        match chore {
            ReplicaTask::Join => self.join(replica),
            ReplicaTask::KeepLease => self.keep_lease(replica),
            ReplicaTask::Register => self.place(replica),
            ReplicaTask::ControllerLocks => self.update_controller_locks(replica),
            ReplicaTask::Presence => self.write_presence(replica),
            ReplicaTask::Liveness => self.reconcile_liveness(replica),
            ReplicaTask::Rollout => self.start_reconcile(replica),
            ReplicaTask::Rebuild => self.rebuild(replica),
        }
    }
}
