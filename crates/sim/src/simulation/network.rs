//! The network between agents and servers: ordered streams that break, and reports that are lost, delayed or
//! duplicated.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use muster_agent::report::dispatch::ServerAnswer;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::node::status::Activity;
use muster_core::report::Report;
use muster_wire::sync::{SyncEvent, SyncOpen};

use super::event::{AgentEvent, Event, MachineNumber, ReplicaEvent, ReplicaNumber, SessionNumber, SimTime};
use super::faults::Fault;
use super::world::World;

/// The read timeout of both ends of a stream: two ping intervals.
const SILENCE: Duration = Duration::from_secs(20);

/// A stream from a server to an agent.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) machine: MachineNumber,
    pub(crate) agent: u64,
    pub(crate) replica: ReplicaNumber,
    pub(crate) server: u64,
    /// Each end closes on its own, possibly without notice from the other end.
    agent_open: bool,
    replica_open: bool,
    /// The arrival time of the last message. Later messages do not overtake it.
    busy_until: SimTime,
    /// Messages that were sent while the agent was unreachable.
    waiting: VecDeque<StreamMessage>,
}

/// A message on a stream. A snapshot is shared by all nodes with the same data, since it is large in a large fleet.
#[derive(Clone, Debug)]
pub(crate) enum StreamMessage {
    Event(SyncEvent),
    Snapshot(Arc<Snapshot>),
}

impl From<SyncEvent> for StreamMessage {
    fn from(event: SyncEvent) -> Self {
        Self::Event(event)
    }
}

impl World {
    pub(crate) fn silence(&self) -> Duration {
        SILENCE
    }

    /// Opens a stream. The server learns of it if it is reachable.
    pub(crate) fn open_session(
        &mut self,
        machine: MachineNumber,
        replica: ReplicaNumber,
        open: SyncOpen,
    ) -> SessionNumber {
        self.session_count += 1;
        let number = self.session_count;
        let session = Session {
            machine,
            agent: self.machines[machine].life,
            replica,
            server: self.replicas[replica].life,
            agent_open: true,
            replica_open: true,
            busy_until: self.now,
            waiting: VecDeque::new(),
        };
        self.sessions.insert(number, session);
        let what = ReplicaEvent::Opened { session: number, open: Box::new(open) };
        let (at, life) = (self.now + self.latency(), self.replicas[replica].life);
        self.queue.schedule(at, Event::Replica { replica, life, what });
        number
    }

    /// Sends a message on a stream.
    pub(crate) fn send(&mut self, number: SessionNumber, message: impl Into<StreamMessage>) {
        let message = message.into();
        let Some(session) = self.sessions.get(&number).filter(|session| session.replica_open) else { return };
        if self.machines[session.machine].is_cut_off(self.now) {
            if let Some(session) = self.sessions.get_mut(&number) {
                session.waiting.push_back(message);
            }
            return;
        }
        let mut delay = self.latency();
        if self.fault_occurs(self.faults.rates.message_delayed) {
            self.count_fault(Fault::MessageDelayed);
            delay += self.random_between(200, 4_000);
        }
        let now = self.now;
        let Some(session) = self.sessions.get_mut(&number) else { return };
        let at = (now + delay).max(session.busy_until);
        session.busy_until = at;
        let (machine, life) = (session.machine, session.agent);
        let what = AgentEvent::Received { session: number, message: Box::new(message) };
        self.queue.schedule(at, Event::Agent { machine, life, what });
    }

    /// Delivers the delayed messages of a machine.
    pub(crate) fn flush_delayed(&mut self, machine: MachineNumber) {
        let delayed: Vec<SessionNumber> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.machine == machine && !session.waiting.is_empty())
            .map(|(number, _)| *number)
            .collect();
        for number in delayed {
            let waiting = self.sessions.get_mut(&number).map(|session| std::mem::take(&mut session.waiting));
            for message in waiting.unwrap_or_default() {
                self.send(number, message);
            }
        }
    }

    pub(crate) fn sessions_at(&self, replica: ReplicaNumber) -> Vec<SessionNumber> {
        let life = self.replicas[replica].life;
        let here = |session: &Session| session.replica == replica && session.server == life;
        self.sessions.iter().filter(|(_, session)| here(session)).map(|(number, _)| *number).collect()
    }

    pub(crate) fn sessions_of(&self, machine: MachineNumber) -> Vec<SessionNumber> {
        self.sessions.iter().filter(|(_, session)| session.machine == machine).map(|(number, _)| *number).collect()
    }

    pub(crate) fn close_agent_end(&mut self, number: SessionNumber) {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.agent_open = false;
        }
        self.forget(number);
    }

    pub(crate) fn close_replica_end(&mut self, number: SessionNumber) {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.replica_open = false;
        }
        self.forget(number);
    }

    fn forget(&mut self, number: SessionNumber) {
        if self.sessions.get(&number).is_some_and(|session| !session.agent_open && !session.replica_open) {
            self.sessions.remove(&number);
        }
    }

    /// The server's end is closed: the agent learns of it at once, or by its read timeout.
    pub(crate) fn notify_agent_of_loss(&mut self, number: SessionNumber) {
        let Some(session) = self.sessions.get(&number).filter(|session| session.agent_open) else { return };
        let (machine, life) = (session.machine, session.agent);
        let after = if self.machines[machine].is_cut_off(self.now) { SILENCE } else { self.latency() };
        let what = AgentEvent::SessionLost { session: number };
        self.queue.schedule(self.now + after, Event::Agent { machine, life, what });
    }

    /// The agent's end is closed: the server learns of it at once, or by its read timeout.
    pub(crate) fn notify_replica_of_loss(&mut self, number: SessionNumber) {
        let Some(session) = self.sessions.get(&number).filter(|session| session.replica_open) else { return };
        let (machine, replica, life) = (session.machine, session.replica, session.server);
        let after = if self.machines[machine].is_cut_off(self.now) { SILENCE } else { self.latency() };
        let what = ReplicaEvent::SessionLost { session: number };
        self.queue.schedule(self.now + after, Event::Replica { replica, life, what });
    }

    /// The read timeout of a stream: each end that is still open closes.
    pub(crate) fn stream_timed_out(&mut self, number: SessionNumber) {
        let Some(session) = self.sessions.get(&number) else { return };
        let (machine, agent, replica, server) = (session.machine, session.agent, session.replica, session.server);
        let lost = self.machines[machine].is_cut_off(self.now);
        let frozen = self.replicas[replica].is_frozen(self.now);
        if !lost && !frozen {
            return;
        }
        let what = AgentEvent::SessionLost { session: number };
        self.queue.schedule(self.now, Event::Agent { machine, life: agent, what });
        let what = ReplicaEvent::SessionLost { session: number };
        self.queue.schedule(self.now, Event::Replica { replica, life: server, what });
    }

    /// Sends the activity of an agent to its server.
    pub(crate) fn send_activity(&mut self, machine: MachineNumber, activity: Activity) {
        let Some(number) = self.machines[machine].stream.session else { return };
        if self.machines[machine].is_cut_off(self.now) {
            return;
        }
        let Some(session) = self.sessions.get(&number) else { return };
        let (replica, life) = (session.replica, session.server);
        let at = self.now + self.latency();
        let what = ReplicaEvent::ActivityReported { session: number, activity };
        self.queue.schedule(at, Event::Replica { replica, life, what });
    }

    /// Sends a report, which may be lost, delayed or duplicated.
    pub(crate) fn send_report(
        &mut self,
        machine: MachineNumber,
        replica: ReplicaNumber,
        ticket: u64,
        report: Box<Report>,
    ) {
        let agent = self.machines[machine].life;
        if self.machines[machine].is_cut_off(self.now) || !self.replicas[replica].up {
            return;
        }
        if self.fault_occurs(self.faults.rates.report_lost) {
            self.count_fault(Fault::ReportLost);
            return;
        }
        let mut at = self.now + self.latency();
        if self.fault_occurs(self.faults.rates.report_delayed) {
            self.count_fault(Fault::ReportDelayed);
            at += self.random_between(500, 20_000);
        }
        let life = self.replicas[replica].life;
        if self.fault_occurs(self.faults.rates.report_duplicated) {
            self.count_fault(Fault::ReportDuplicated);
            let again = at + self.random_between(10, 15_000);
            // The duplicate goes to any server.
            let other = self.rng.below(self.replicas.len() as u64) as usize;
            let (other, life) =
                if self.replicas[other].up { (other, self.replicas[other].life) } else { (replica, life) };
            let what = ReplicaEvent::Reported { machine, agent, ticket, report: report.clone() };
            self.queue.schedule(again, Event::Replica { replica: other, life, what });
        }
        let what = ReplicaEvent::Reported { machine, agent, ticket, report };
        self.queue.schedule(at, Event::Replica { replica, life, what });
    }

    pub(crate) fn answer_report(
        &mut self,
        _replica: ReplicaNumber,
        machine: MachineNumber,
        agent: u64,
        ticket: u64,
        answer: ServerAnswer,
    ) {
        if self.machines[machine].is_cut_off(self.now) {
            return;
        }
        if self.fault_occurs(self.faults.rates.report_answer_lost) {
            self.count_fault(Fault::ReportAnswerLost);
            return;
        }
        let at = self.now + self.latency();
        let what = AgentEvent::Answered { ticket, answer };
        self.queue.schedule(at, Event::Agent { machine, life: agent, what });
    }

    /// Cuts a machine off from all servers for a while.
    pub(crate) fn cut_off(&mut self, machine: MachineNumber, length: Duration) {
        let until = self.now + length;
        let known = self.machines[machine].cut_off_until;
        if known.is_some_and(|known| known >= until) {
            return;
        }
        self.machines[machine].cut_off_until = Some(until);
        self.machines[machine].cut_offs += 1;
        self.note_reach(machine);
        let number = self.machines[machine].cut_offs;
        self.queue.schedule(until, Event::CutOffEnds { machine, number });
        for session in self.sessions_of(machine) {
            if length > SILENCE {
                self.queue.schedule(self.now + SILENCE, Event::StreamTimedOut { session });
            }
        }
    }
}
