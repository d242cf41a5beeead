//! The agent's connection: its end of the stream, and the sender of the reports in its outbox.

use std::sync::Arc;
use std::time::Duration;

use muster_agent::queue::io::{AcceptedReport, Input};
use muster_agent::report::dispatch::{NextSend, ReportDisposition, ServerAnswer};
use muster_agent::report::sender::ANSWER_TIMEOUT;
use muster_wire::sync::SyncEvent;

use crate::simulation::event::{AgentEvent, Event, MachineNumber, SessionNumber};
use crate::simulation::network::StreamMessage;
use crate::simulation::world::World;

/// The time that an agent waits until a server accepts its stream.
const OPENING: Duration = Duration::from_secs(10);

impl World {
    pub(super) fn dial(&mut self, number: MachineNumber) {
        let machine = &self.machines[number];
        if !machine.up || machine.stream.session.is_some() {
            return;
        }
        let replica = (machine.stream.route) % self.replicas.len();
        if machine.is_cut_off(self.now) {
            self.dial_again(number);
            return;
        }
        if !self.replicas[replica].up {
            self.machines[number].stream.route += 1;
            self.dial_again(number);
            return;
        }
        let mut opening = machine.status.sync_state.clone();
        if machine.stream.renewing {
            opening.incarnation = None;
        }
        let open = opening.open_message(machine.status.activity.clone(), machine.node.boot.clone(), false);
        let session = self.open_session(number, replica, open);
        let machine = &mut self.machines[number];
        machine.stream.asks_anew = machine.stream.renewing;
        machine.stream.session = Some(session);
        let life = machine.life;
        let what = AgentEvent::OpeningTimedOut { session };
        self.queue.schedule(self.now + OPENING, Event::Agent { machine: number, life, what });
    }

    fn dial_again(&mut self, number: MachineNumber) {
        let machine = &mut self.machines[number];
        machine.stream.dials = machine.stream.dials.saturating_add(1);
        let life = machine.life;
        let longest = 200 << machine.stream.dials.min(4);
        let at = self.now + self.random_between(100, longest);
        self.queue.schedule(at, Event::Agent { machine: number, life, what: AgentEvent::Dials });
    }

    pub(super) fn message_received(&mut self, number: MachineNumber, session: SessionNumber, message: StreamMessage) {
        let machine = &mut self.machines[number];
        if machine.stream.session != Some(session) {
            return;
        }
        let event = match message {
            StreamMessage::Snapshot(snapshot) => return self.input(number, Input::Snapshot(snapshot)),
            StreamMessage::Event(event) => event,
        };
        match event {
            SyncEvent::Hello { incarnation, role, host_name, now, .. } => {
                machine.stream.dials = 0;
                let renewed = machine.stream.asks_anew;
                self.input(number, Input::Hello { incarnation, role, host_name, now, renewed });
            }
            SyncEvent::Desired(desired) => self.input(number, Input::Desired(desired)),
            SyncEvent::Snapshot { snapshot, .. } => self.input(number, Input::Snapshot(Arc::new(snapshot))),
            SyncEvent::Pause { pause } => self.input(number, Input::Pause(pause)),
            SyncEvent::Run(request) => self.input(number, Input::RunRequested(request)),
            SyncEvent::Ping => {
                let activity = machine.status.activity.clone();
                self.send_activity(number, activity);
            }
            SyncEvent::Trust { .. } | SyncEvent::Identity { .. } | SyncEvent::Move => {}
        }
    }

    pub(super) fn session_lost(&mut self, number: MachineNumber, session: SessionNumber) {
        if self.machines[number].stream.session != Some(session) {
            return;
        }
        self.leave(number);
        self.machines[number].stream.route += 1;
        self.dial_again(number);
    }

    /// Closes the agent's end.
    pub(super) fn leave(&mut self, number: MachineNumber) {
        if let Some(session) = self.machines[number].stream.session.take() {
            self.close_agent_end(session);
            self.notify_replica_of_loss(session);
        }
    }

    pub(super) fn opening_timed_out(&mut self, number: MachineNumber, session: SessionNumber) {
        // `dials` is 0 once a server has accepted the stream.
        if self.machines[number].stream.session == Some(session) && self.machines[number].stream.dials > 0 {
            self.session_lost(number, session);
        }
    }

    /// Reopens the stream to request another incarnation.
    pub(super) fn renew(&mut self, number: MachineNumber) {
        self.machines[number].stream.renewing = true;
        self.leave(number);
        self.dial_again(number);
    }
}

impl World {
    /// A report or a server has become available.
    pub(super) fn wake_sender(&mut self, number: MachineNumber) {
        if self.machines[number].sender.in_flight.is_some() || !self.machines[number].up {
            return;
        }
        let machine = &mut self.machines[number];
        let incarnation = machine.status.sync_state.incarnation.filter(|_| !machine.stream.renewing);
        let first = machine.disk.outbox.values().next();
        match machine.sender.dispatch.next(first, incarnation) {
            NextSend::Idle => {}
            NextSend::NoIncarnation => self.send_later(number),
            NextSend::Send(report) => {
                machine.sender.ticket += 1;
                machine.sender.in_flight = Some(report.seq);
                let (ticket, life) = (machine.sender.ticket, machine.life);
                let connected = machine.stream.session.and_then(|session| self.sessions.get(&session));
                let replica = connected.map_or(machine.stream.route % self.replicas.len(), |session| session.replica);
                self.send_report(number, replica, ticket, report);
                let what = AgentEvent::Answered { ticket, answer: ServerAnswer::Unknown };
                self.queue.schedule(self.now + ANSWER_TIMEOUT, Event::Agent { machine: number, life, what });
            }
        }
    }

    fn send_later(&mut self, number: MachineNumber) {
        let chance = self.rng.below(1_000) as f64 / 1_000.0;
        let machine = &self.machines[number];
        match machine.sender.dispatch.pause(chance) {
            None => self.wake_sender(number),
            Some(pause) => {
                let what = AgentEvent::SendsAgain { ticket: machine.sender.ticket };
                let life = machine.life;
                self.queue.schedule(self.now + pause, Event::Agent { machine: number, life, what });
            }
        }
    }

    pub(super) fn report_answered(&mut self, number: MachineNumber, ticket: u64, answer: ServerAnswer) {
        let machine = &mut self.machines[number];
        if machine.sender.ticket != ticket {
            return;
        }
        let Some(seq) = machine.sender.in_flight.take() else { return };
        // Drops the pending timeout of this report.
        machine.sender.ticket += 1;
        match machine.sender.dispatch.answered(seq, answer) {
            ReportDisposition::Remove => {
                let report = machine.disk.outbox.get(&seq);
                let awaited = report.filter(|report| machine.status.awaited == Some(report.generation));
                if let Some(taken) = awaited.map(AcceptedReport::from) {
                    // It is removed when the queue has recorded the acceptance.
                    machine.sender.in_flight = Some(seq);
                    self.input(number, Input::ReportAccepted(taken));
                    return;
                }
                machine.disk.outbox.remove(&seq);
            }
            ReportDisposition::Drop | ReportDisposition::Refuse => {
                machine.disk.outbox.remove(&seq);
            }
            ReportDisposition::RenewIncarnation => self.renew(number),
            ReportDisposition::Retry => {}
        }
        self.send_later(number);
    }

    /// The acceptance is recorded.
    pub(super) fn forget_report(&mut self, number: MachineNumber) {
        let machine = &mut self.machines[number];
        if let Some(seq) = machine.sender.in_flight.take() {
            machine.disk.outbox.remove(&seq);
        }
        self.send_later(number);
    }
}
