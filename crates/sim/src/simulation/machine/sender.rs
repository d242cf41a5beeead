//! Sends the reports of the outbox: [`muster_agent::report::dispatch`] decides the next one, and what an answer means.

use muster_agent::queue::io::{AcceptedReport, Input};
use muster_agent::report::dispatch::{NextSend, ReportDisposition, ServerAnswer};
use muster_agent::report::sender::ANSWER_TIMEOUT;

use crate::simulation::event::{AgentEvent, Event, MachineNumber};
use crate::simulation::world::World;

impl World {
    /// A report or a server has become available.
    pub(super) fn wake_sender(&mut self, number: MachineNumber) {
        if self.machines[number].in_flight.is_some() || !self.machines[number].up {
            return;
        }
        let machine = &mut self.machines[number];
        let incarnation = machine.told.sync_state.incarnation.filter(|_| !machine.renewing);
        let first = machine.disk.outbox.values().next();
        match machine.dispatch.next(first, incarnation) {
            NextSend::Idle => {}
            NextSend::NoIncarnation => self.send_later(number),
            NextSend::Send(report) => {
                machine.ticket += 1;
                machine.in_flight = Some(report.seq);
                let (ticket, life) = (machine.ticket, machine.life);
                let connected = machine.session.and_then(|session| self.sessions.get(&session));
                let replica = connected.map_or(machine.route % self.replicas.len(), |session| session.replica);
                self.send_report(number, replica, ticket, report);
                let what = AgentEvent::Answered { ticket, answer: ServerAnswer::Unknown };
                self.queue.schedule(self.now + ANSWER_TIMEOUT, Event::Agent { machine: number, life, what });
            }
        }
    }

    fn send_later(&mut self, number: MachineNumber) {
        let chance = self.rng.below(1_000) as f64 / 1_000.0;
        let machine = &self.machines[number];
        match machine.dispatch.pause(chance) {
            None => self.wake_sender(number),
            Some(pause) => {
                let what = AgentEvent::SendsAgain { ticket: machine.ticket };
                let life = machine.life;
                self.queue.schedule(self.now + pause, Event::Agent { machine: number, life, what });
            }
        }
    }

    pub(super) fn report_answered(&mut self, number: MachineNumber, ticket: u64, answer: ServerAnswer) {
        let machine = &mut self.machines[number];
        if machine.ticket != ticket {
            return;
        }
        let Some(seq) = machine.in_flight.take() else { return };
        // Drops the pending timeout of this report.
        machine.ticket += 1;
        match machine.dispatch.answered(seq, answer) {
            ReportDisposition::Remove => {
                let report = machine.disk.outbox.get(&seq);
                let awaited = report.filter(|report| machine.told.awaited == Some(report.generation));
                if let Some(taken) = awaited.map(AcceptedReport::from) {
                    // It is removed when the queue has recorded the acceptance.
                    machine.in_flight = Some(seq);
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
        if let Some(seq) = machine.in_flight.take() {
            machine.disk.outbox.remove(&seq);
        }
        self.send_later(number);
    }
}
