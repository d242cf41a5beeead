//! Runs the effects of an agent's queue one by one. A write may be slow, and the agent may be killed after any effect.

use std::sync::Arc;

use muster_agent::clock::EventTime;
use muster_agent::queue::io::{Effect, Input};

use super::AckReceiver;
use crate::simulation::event::{AgentEvent, Event, MachineNumber};
use crate::simulation::faults::Fault;
use crate::simulation::world::World;

impl World {
    /// Passes an input to an agent, after the effects of the previous one.
    pub(super) fn input(&mut self, number: MachineNumber, input: Input) {
        let machine = &mut self.machines[number];
        if !machine.up {
            return;
        }
        if machine.effects.writing || !machine.effects.queued.is_empty() {
            machine.effects.inbox.push_back(input);
        } else {
            self.handle_input(number, input);
        }
    }

    pub(super) fn handle_input(&mut self, number: MachineNumber, input: Input) {
        let chance = self.rng.below(1_000) as f64 / 1_000.0;
        let moment = EventTime { instant: self.base + self.now, up: self.now, clock: self.timestamp(self.now), chance };
        let machine = &mut self.machines[number];
        let Some(queue) = &mut machine.queue else { return };
        machine.ack_receiver = match &input {
            Input::Configured { .. } | Input::HooksSucceeded => AckReceiver::Run,
            Input::ReportAccepted(_) => AckReceiver::Sender,
            Input::Started
            | Input::Tick
            | Input::Hello { .. }
            | Input::Duplicate
            | Input::Desired(_)
            | Input::Snapshot(_)
            | Input::Pause(_)
            | Input::RunRequested(_)
            | Input::AddressesChanged
            | Input::Finished { .. }
            | Input::Previewed { .. }
            | Input::Validated { .. }
            | Input::HooksFinished { .. }
            | Input::Superseded
            | Input::NotContinued
            | Input::Interrupted
            | Input::ReleaseChecked { .. } => AckReceiver::None,
        };
        let effects = queue.handle(input, moment);
        machine.effects.queued.extend(effects);
        self.run_effects(number);
    }

    /// Runs the remaining effects, and then handles the next input.
    pub(super) fn run_effects(&mut self, number: MachineNumber) {
        while let Some(effect) = self.machines[number].effects.queued.pop_front() {
            if let Some(left) = self.machines[number].effects.crash_after {
                if left == 0 {
                    self.count_fault(Fault::AgentCrashedBetweenEffects);
                    self.log_node(number, format_args!("its agent is killed between two effects"));
                    let back = self.random_between(500, 10_000);
                    self.crash_agent(number, back);
                    return;
                }
                self.machines[number].effects.crash_after = Some(left - 1);
            }
            let is_write = self.run_effect(number, effect);
            let machine = &mut self.machines[number];
            if is_write && self.now < machine.effects.slow_until {
                machine.effects.writing = true;
                let life = machine.life;
                let at = self.now + self.random_between(200, 4_000);
                self.queue.schedule(at, Event::Agent { machine: number, life, what: AgentEvent::DiskDone });
                return;
            }
        }
        if let Some(next) = self.machines[number].effects.inbox.pop_front() {
            self.handle_input(number, next);
            return;
        }
        self.set_tick(number);
    }

    /// Runs one effect. True if it was a write to disk.
    fn run_effect(&mut self, number: MachineNumber, effect: Effect) -> bool {
        let machine = &mut self.machines[number];
        match effect {
            Effect::SaveLedger(ledger) => {
                self.checker.ledger_saved(number, &machine.disk.ledger, &ledger);
                machine.disk.ledger = *ledger;
                self.log_violations();
                true
            }
            Effect::SaveSnapshot(snapshot) => {
                machine.disk.snapshot = Some(snapshot);
                true
            }
            Effect::StoreReport(report) => {
                self.checker.report_stored(number, &report, machine.agent_life());
                machine.disk.outbox.insert(report.seq, *report);
                true
            }
            Effect::WakeSender => {
                self.wake_sender(number);
                false
            }
            Effect::IncarnationRenewed => {
                machine.stream.renewing = false;
                false
            }
            Effect::Acknowledge => {
                match machine.ack_receiver {
                    AckReceiver::None => {}
                    AckReceiver::Run => self.acknowledged(number),
                    AckReceiver::Sender => self.forget_report(number),
                }
                false
            }
            Effect::CheckRelease(_) => {
                // The cache keeps the release of a rollback.
                machine.effects.inbox.push_front(Input::ReleaseChecked { problem: None });
                false
            }
            Effect::Publish(status) => {
                let acts = status.activity != machine.status.activity;
                machine.status = *status;
                if acts {
                    let activity = machine.status.activity.clone();
                    self.send_activity(number, activity);
                }
                false
            }
            Effect::StartWork(order) => {
                machine.disk.seen = Some(Arc::clone(&order.snapshot));
                self.start_applier(number, order);
                false
            }
            Effect::AdoptWork(order) => {
                if let Some(input) = self.adopt(number, order) {
                    self.machines[number].effects.inbox.push_front(input);
                }
                false
            }
        }
    }

    fn set_tick(&mut self, number: MachineNumber) {
        let machine = &mut self.machines[number];
        let Some(wake) = machine.queue.as_ref().and_then(muster_agent::queue::state_machine::RunQueue::wake_at) else {
            return;
        };
        let at = wake.saturating_duration_since(self.base).max(self.now);
        if machine.tick_at.is_some_and(|known| known <= at) {
            return;
        }
        machine.tick_at = Some(at);
        let life = machine.life;
        self.queue.schedule(at, Event::Agent { machine: number, life, what: AgentEvent::Tick });
    }
}
