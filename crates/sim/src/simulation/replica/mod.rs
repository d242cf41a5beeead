//! One server: its view of the environment, its lease, the controllers that it holds, and the agents that are connected to
//! it. What it decides, the core and the rollout engine decide; here is only what carries it out.

pub(crate) mod calls;
pub(crate) mod chore;
mod errands;
mod hands;
mod links;
mod liveness;
mod membership;
mod presence;
pub(crate) mod reports;
mod rollouts;
mod sessions;
mod snapshots;
mod tenures;
pub(crate) mod view;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use muster_core::fleet::Fleet;
use muster_core::names::{NodeName, ReplicaId};
use muster_core::replica::ControllerName;
use muster_core::replica::controller_lock::{ControllerLock, ReplicaLease};
use muster_core::replica::links::LinkTracker;
use muster_core::txn::{LeaseId, Revision};
use muster_rollout::arrivals::Arrivals;

use self::calls::{Answer, Call};
use self::chore::{Chore, Chores};
use self::errands::Doing;
pub(crate) use self::hands::Needy;
use self::links::Links;
use self::reports::ReportIntake;
use self::rollouts::Rollouts;
use self::sessions::Connection;
use self::snapshots::Snapshots;
pub(crate) use self::view::take_in;
use super::agenda::Moment;
use super::event::{Event, ReplicaEvent, ReplicaNumber, SessionNumber};
use super::mishap::Mishap;
use super::operator::Wish;
use super::store::Writer;
use super::world::World;

#[derive(Clone, Debug)]
pub(crate) struct Replica {
    /// Another one for each start.
    pub(crate) id: ReplicaId,
    pub(crate) life: u64,
    pub(crate) up: bool,
    pub(crate) frozen_until: Option<Moment>,
    /// Cut off from the store.
    pub(crate) cut_off_until: Option<Moment>,
    /// How wrong its clock is.
    pub(crate) skew: SignedDuration,
    /// None before it has read all.
    pub(crate) view: Option<Fleet>,
    /// Since when it knows what is in the view.
    arrivals: Arrivals,
    /// Another one after each gap.
    watch: u64,
    /// Nothing of the watch arrives before then.
    watch_until: Moment,
    current: Option<ReplicaLease>,
    /// By its own clock, counted from when the last keep-alive was sent: the lease lives at least as long.
    good_until: Moment,
    held: BTreeMap<ControllerName, ControllerLock>,
    refused: BTreeMap<ControllerName, (LeaseId, Revision)>,
    taking: BTreeSet<ControllerName>,
    connections: BTreeMap<NodeName, Connection>,
    silent_since: BTreeMap<NodeName, Timestamp>,
    listening_since: Timestamp,
    absences: Option<LinkTracker>,
    links: Links,
    snapshots: Snapshots,
    chores: Chores,
    reports: ReportIntake,
    presence_under_way: bool,
    liveness_under_way: u32,
    pub(crate) rollouts: Rollouts,
    /// What people have asked for, by the numbers of their wishes.
    errands: BTreeMap<u64, (Wish, Doing)>,
    /// Who waits until the view shows what.
    awaited: Vec<(Revision, Needy)>,
    /// The plans that it has read, and remembers.
    plans: BTreeSet<String>,
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
            arrivals: Arrivals::default(),
            watch: 0,
            watch_until: Moment::ZERO,
            current: None,
            good_until: Moment::ZERO,
            held: BTreeMap::new(),
            refused: BTreeMap::new(),
            taking: BTreeSet::new(),
            connections: BTreeMap::new(),
            silent_since: BTreeMap::new(),
            listening_since: now,
            absences: None,
            links: Links::default(),
            snapshots: Snapshots::default(),
            chores: Chores::default(),
            reports: ReportIntake::default(),
            presence_under_way: false,
            liveness_under_way: 0,
            rollouts: Rollouts::default(),
            errands: BTreeMap::new(),
            awaited: Vec::new(),
            plans: BTreeSet::new(),
        }
    }

    /// The lease, as long as it surely lives.
    pub(crate) fn current(&self, now: Moment) -> Option<ReplicaLease> {
        self.current.filter(|_| now < self.good_until)
    }

    /// A controller, if this server holds it and may act.
    pub(crate) fn held(&self, name: ControllerName, now: Moment) -> Option<&ControllerLock> {
        let current = self.current(now)?;
        self.held.get(&name).filter(|held| held.lease == current.lease)
    }

    pub(crate) fn is_frozen(&self, now: Moment) -> bool {
        self.frozen_until.is_some_and(|until| now < until)
    }
}

/// The name of a server's process. The tag at its end tells lives apart.
fn id(number: ReplicaNumber, life: u64) -> ReplicaId {
    match ReplicaId::new(format!("ctl{}-{life:06x}", number + 1)) {
        Ok(id) => id,
        // Letters, digits and one `-`, and not many of them.
        Err(error) => unreachable!("{error}"),
    }
}

impl World {
    /// The time by the clock of a server.
    pub(crate) fn clock_of(&self, replica: ReplicaNumber) -> Timestamp {
        let right = self.timestamp(self.now);
        right.saturating_add(self.replicas[replica].skew).unwrap_or(right)
    }

    pub(crate) fn start_replica(&mut self, replica: ReplicaNumber) {
        let (life, skew) = (self.replicas[replica].life + 1, self.replicas[replica].skew);
        let fresh = Replica::new(replica, life, skew, self.clock_of(replica));
        self.replicas[replica] = fresh;
        self.server_says(replica, format_args!("starts"));
        self.due(replica, Chore::Rebuild, self.now);
        self.due(replica, Chore::Join, self.now);
    }

    pub(crate) fn crash_replica(&mut self, replica: ReplicaNumber, back_after: Moment) {
        self.server_says(replica, format_args!("crashes"));
        self.mishap(Mishap::ReplicaCrashed);
        self.judge.replica_went(&self.replicas[replica].id, self.now);
        self.replicas[replica].up = false;
        self.replicas[replica].view = None;
        let sessions: Vec<SessionNumber> = self.sessions_at(replica);
        for session in sessions {
            self.replica_lets_go(session);
            self.tell_agent_of_loss(session);
        }
        let life = self.replicas[replica].life;
        self.agenda.put(self.now + back_after, Event::ReplicaStarts { replica, life });
    }

    /// Nothing happens at a server until it thaws; then all that came meanwhile does, one after the other.
    pub(crate) fn freeze(&mut self, replica: ReplicaNumber, pause: Moment) {
        let until = self.now + pause;
        self.server_says(replica, format_args!("freezes for {} ms", pause.as_millis()));
        self.judge.replica_went(&self.replicas[replica].id, self.now);
        self.replicas[replica].frozen_until = Some(until);
        let silence = self.silence();
        for session in self.sessions_at(replica) {
            if pause > silence {
                self.agenda.put(self.now + silence, Event::Unheard { session });
            }
        }
    }

    pub(crate) fn replica_event(&mut self, replica: ReplicaNumber, what: ReplicaEvent) {
        match what {
            ReplicaEvent::Told { watch, upto } => self.told(replica, watch, upto),
            ReplicaEvent::Answered { call, answer } => self.answered(replica, call, answer),
            ReplicaEvent::Due(chore) => self.do_chore(replica, chore),
            ReplicaEvent::Opened { session, open } => self.opened(replica, session, open),
            ReplicaEvent::Acts { session, activity } => self.acts(replica, session, activity),
            ReplicaEvent::Reported { machine, agent, ticket, report } => {
                self.report_arrives(replica, machine, agent, ticket, report);
            }
            ReplicaEvent::SessionLost { session } => self.connection_lost(replica, session),
            ReplicaEvent::Pings { session } => self.ping(replica, session),
            ReplicaEvent::Wished(wish) => self.wish_arrives(replica, wish),
            ReplicaEvent::Brings { who, need } => self.brings(replica, who, *need),
            ReplicaEvent::StopsWaiting { who, revision } => self.stops_waiting(replica, who, revision),
            ReplicaEvent::CatchUpEnds { request, revision } => self.catch_up_ends(replica, request, revision),
            ReplicaEvent::Checked(question) => self.checked(replica, *question),
        }
    }

    fn answered(&mut self, replica: ReplicaNumber, call: Call, answer: Answer) {
        match call {
            Call::Join { sent } => self.joined(replica, sent, answer),
            Call::KeepAlive { lease, sent } => self.kept(replica, lease, sent, answer),
            Call::Place => self.placed(replica, answer),
            Call::Take { name, lease } => self.taken(replica, name, lease, answer),
            Call::Greet { session, open, incarnation, tries } => {
                self.greeted(replica, session, open, incarnation, tries, answer);
            }
            Call::GreetAgain { session, open, tries } => self.greet_again(replica, session, open, tries, answer),
            Call::ReportCommit { request } => self.report_committed(replica, request, answer),
            Call::ReportRead { request } => self.report_read(replica, request, answer),
            Call::Presence => self.presence_written(replica, answer),
            Call::Liveness { held } => self.liveness_written(replica, held, answer),
            Call::Newest { who } => self.newest_read(replica, who, &answer),
            Call::Step { held, look } => self.stepped(replica, held, look, &answer),
            Call::Errand { number } => self.errand_written(replica, number, &answer),
        }
    }

    /// In whose name a call writes.
    pub(crate) fn writer(&self, replica: ReplicaNumber, call: &Call) -> Writer {
        let controller = |name| Writer::Controller { name, replica: self.replicas[replica].id.clone() };
        match call {
            Call::Liveness { .. } => controller(ControllerName::Liveness),
            Call::Step { .. } => controller(ControllerName::Rollout),
            Call::Errand { .. } => Writer::Operator,
            Call::Join { .. }
            | Call::KeepAlive { .. }
            | Call::Place
            | Call::Take { .. }
            | Call::Greet { .. }
            | Call::GreetAgain { .. }
            | Call::ReportCommit { .. }
            | Call::ReportRead { .. }
            | Call::Presence
            | Call::Newest { .. } => Writer::Server,
        }
    }
}
