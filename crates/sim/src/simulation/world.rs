//! The simulated world: servers, store, agents and network, with a clock that jumps from event to event.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_core::keys::Keys;
use muster_core::names::EnvName;
use muster_core::rollout::RolloutId;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::GateVerdict;
use muster_rollout::step::IndexedPlan;
use tokio::time::Instant;

use super::checker::{Checker, Violation};
use super::coverage::DecisionArm;
use super::event::{Event, EventQueue, MachineNumber, ReplicaNumber, SessionNumber, SimTime};
use super::faults::{Fault, FaultCounts, FaultRates, MOST_SKEW};
use super::fleet::{Design, Releases, founding};
use super::log::EventLog;
use super::machine::Machine;
use super::network::Session;
use super::replica::Replica;
use super::store::{ControllerWriteFault, SimStore, Writer};
use crate::rng::Rng;

/// The start time of every seed: a Monday morning.
pub const START: Timestamp = Timestamp::constant(1794819600, 0);

/// Releases in each world.
pub(crate) const RELEASES: u64 = 5;

/// A fleet with its servers, their store, and the scheduled events.
#[derive(Clone, Debug)]
pub struct World {
    pub(crate) now: SimTime,
    /// The real time at the start.
    start: Timestamp,
    /// The origin of the agents' monotonic clock.
    pub(crate) base: Instant,
    pub(crate) queue: EventQueue<Event>,
    pub(crate) rng: Rng,
    pub(crate) log: EventLog,
    pub(crate) faults: FaultState,
    pub(crate) env: EnvName,
    pub(crate) keys: Keys,
    pub(crate) design: Design,
    pub(crate) releases: Releases,
    pub(crate) depot: SimStore,
    pub(crate) blobs: SimBlobs,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) sessions: BTreeMap<SessionNumber, Session>,
    pub(crate) session_count: u64,
    pub(crate) operators: OperatorState,
    pub(crate) gate: GateBehaviour,
    /// The number of timed runs and previews so far.
    pub(crate) timed_runs: u64,
    pub(crate) checker: Checker,
}

/// Faults of a run: how often they occur, and how often they have occurred.
#[derive(Clone, Debug)]
pub(crate) struct FaultState {
    pub(crate) counts: FaultCounts,
    pub(crate) rates: FaultRates,
    /// The largest clock error of a server.
    pub(crate) most_skew: SignedDuration,
    /// No faults occur after this time.
    pub(crate) calm_from: SimTime,
    /// The scripted fault of the rollout controller's next write.
    pub(crate) next_write: Option<ControllerWriteFault>,
}

/// Blobs of the servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimBlobs {
    /// The stored plans, by blob name.
    pub(crate) plans: BTreeMap<String, Arc<IndexedPlan>>,
    /// No server can read the plans.
    pub(crate) plans_missing: bool,
    /// The names of the stored outcomes.
    pub(crate) outcomes: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct OperatorState {
    /// The number of requests so far.
    pub(crate) requests: u64,
    /// The probability that an action is sent a second time, with the same idempotency key.
    pub(crate) repeat: f64,
    /// A plan that an operator has saved.
    pub(crate) saved_plan: Option<Box<RolloutPlan>>,
}

/// Verdicts of gates, in percent.
#[derive(Clone, Debug, Default)]
pub struct GateBehaviour {
    pub fails: u64,
    pub inconclusive: u64,
    /// Name and message of the check.
    pub words: Option<(String, String)>,
}

impl World {
    /// A fleet of new machines, with servers that have just started.
    pub fn new(design: Design, servers: usize, start: Timestamp) -> Self {
        let env = match EnvName::new("prod") {
            Ok(env) => env,
            Err(error) => unreachable!("{error}"),
        };
        let mut world = Self {
            now: SimTime::ZERO,
            start,
            base: Instant::now(),
            queue: EventQueue::new(),
            rng: Rng::new(0),
            log: EventLog::default(),
            faults: FaultState {
                counts: FaultCounts::default(),
                rates: FaultRates::default(),
                most_skew: MOST_SKEW,
                calm_from: SimTime::ZERO,
                next_write: None,
            },
            keys: Keys::new(&env),
            checker: Checker::new(env.clone()),
            env,
            releases: Releases::default(),
            depot: SimStore::default(),
            blobs: SimBlobs::default(),
            replicas: Vec::new(),
            machines: Vec::new(),
            sessions: BTreeMap::new(),
            session_count: 0,
            operators: OperatorState::default(),
            gate: GateBehaviour::default(),
            timed_runs: 0,
            design,
        };
        if let Ok(txn) = founding(&world.env, &world.design, RELEASES) {
            // It has no guards, and cannot conflict.
            let _ = world.commit_txn(&txn, Writer::Setup);
        }
        for number in 0..servers {
            let now = world.timestamp(SimTime::ZERO);
            let server = Replica::new(number, 0, SignedDuration::ZERO, now);
            world.replicas.push(server);
            world.start_replica(number);
        }
        let nodes: Vec<_> = world.design.nodes().collect();
        for (name, _, number) in nodes {
            let domain = super::fleet::domain_of(&world.design, number);
            world.add_machine(Machine::new(&world.env, name, domain));
        }
        world
    }

    pub(crate) fn add_machine(&mut self, machine: Machine) {
        let number = self.machines.len();
        self.checker.machine(number, &machine.name);
        self.machines.push(machine);
        self.start_agent(number);
    }

    /// Handles the next event. False if there is none before `until`; then it is that time.
    pub fn step(&mut self, until: SimTime) -> bool {
        if self.queue.next_at().is_none_or(|at| at > until) {
            self.now = self.now.max(until);
            return false;
        }
        let Some((at, event)) = self.queue.pop() else { return false };
        self.now = self.now.max(at);
        self.handle(event);
        true
    }

    /// Handles all events up to a time, or to the first violation.
    pub fn run_until(&mut self, until: SimTime) {
        while self.violation().is_none() && self.step(until) {}
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Store(event) => self.store_event(event),
            Event::Replica { replica, life, what } => {
                let server = &self.replicas[replica];
                if !server.up || server.life != life {
                    return;
                }
                match server.frozen_until.filter(|until| self.now < *until) {
                    Some(until) => self.queue.schedule(until, Event::Replica { replica, life, what }),
                    None => self.replica_event(replica, what),
                }
            }
            Event::Agent { machine, life, what } => {
                use super::event::AgentEvent;
                let lives = self.machines[machine].life == life;
                match (self.machines[machine].up, what) {
                    (false, AgentEvent::Starts) if lives => self.start_agent(machine),
                    (true, what) if lives => self.agent_event(machine, what),
                    (_, _) => {}
                }
            }
            Event::Machine { machine, what } => self.machine_event(machine, what),
            Event::InjectFault => self.inject_fault(),
            Event::LockHolderFails => self.fail_lock_holder(),
            Event::RetryFailedNode => self.retry_failed_node(),
            Event::ReplicaStarts { replica, life } => {
                if !self.replicas[replica].up && self.replicas[replica].life == life {
                    self.start_replica(replica);
                }
            }
            Event::CutOffEnds { machine, number } => self.cut_off_ends(machine, number),
            Event::StreamTimedOut { session } => self.stream_timed_out(session),
            Event::Operator(action) => self.send_action(action),
            Event::AddNode => self.add_random_node(),
            Event::Decommission { node } => self.decommission(&node),
            Event::RemoveNode { node } => self.remove_node(&node),
        }
    }

    fn cut_off_ends(&mut self, machine: MachineNumber, number: u64) {
        if self.machines[machine].cut_offs != number {
            return;
        }
        self.machines[machine].cut_off_until = None;
        self.note_reach(machine);
        self.log_node(machine, format_args!("is reachable again"));
        self.flush_delayed(machine);
    }

    /// The real time, which no clock in the simulation shows.
    pub(crate) fn timestamp(&self, at: SimTime) -> Timestamp {
        let passed = SignedDuration::try_from(at).unwrap_or(SignedDuration::MAX);
        self.start.saturating_add(passed).unwrap_or(self.start)
    }

    pub(crate) fn log_event(&mut self, what: fmt::Arguments<'_>) {
        self.log.push(self.now, what);
    }

    pub(crate) fn log_replica(&mut self, replica: ReplicaNumber, what: fmt::Arguments<'_>) {
        self.log.push(self.now, format_args!("{}: {what}", self.replicas[replica].id));
    }

    pub(crate) fn log_node(&mut self, machine: MachineNumber, what: fmt::Arguments<'_>) {
        self.log.push(self.now, format_args!("{}: {what}", self.machines[machine].name));
    }

    pub(crate) fn count_fault(&mut self, fault: Fault) {
        self.faults.counts.count(fault);
    }

    /// Records decisions of the engine.
    pub(crate) fn record_arms(&mut self, arms: impl IntoIterator<Item = DecisionArm>) {
        self.checker.arms.record(arms);
    }

    /// True if a fault with this probability occurs now.
    pub(crate) fn fault_occurs(&mut self, probability: f64) -> bool {
        self.now < self.faults.calm_from && self.rng.chance(probability)
    }

    /// A random duration between two numbers of milliseconds.
    pub(crate) fn random_between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(1_000 * least + self.rng.below(1_000 * most.saturating_sub(least).max(1)))
    }

    /// A random message latency.
    pub(crate) fn latency(&mut self) -> Duration {
        Duration::from_micros(500 + self.rng.below(9_500))
    }

    pub(crate) fn gate_verdict(&mut self, id: RolloutId, wave: usize, at: Timestamp) -> GateVerdict {
        let drawn = self.rng.below(100);
        let GateBehaviour { fails, inconclusive, ref words } = self.gate;
        let (check, message) = words.clone().unwrap_or_else(|| ("front door".into(), "simulated".into()));
        let verdict = if drawn < fails {
            self.count_fault(Fault::GateFailed);
            GateVerdict::Failed { at, check, message }
        } else if drawn < fails + inconclusive {
            self.count_fault(Fault::GateInconclusive);
            GateVerdict::Inconclusive { at, check, message }
        } else {
            GateVerdict::Passed { at }
        };
        self.checker.gate_said(id, wave, matches!(verdict, GateVerdict::Passed { .. }));
        verdict
    }

    pub(crate) fn log_violations(&mut self) {
        for violation in self.checker.unlogged() {
            self.log.push(self.now, format_args!("VIOLATION of {violation}"));
        }
    }

    /// The first violation of a rule.
    pub fn violation(&self) -> Option<&Violation> {
        self.checker.violations().first()
    }

    /// The duration of each takeover of the rollout controller.
    pub fn takeovers(&self) -> &[SimTime] {
        self.checker.takeovers()
    }

    /// The state of each node in the store.
    pub fn node_summaries(&self) -> Vec<String> {
        let line = |(name, node): (&muster_core::names::NodeName, &muster_core::fleet::Node)| {
            let state = node.state().map(|(state, _)| format!("{} at {}", state.word(), state.version()));
            let desired = self.checker.fleet().desired_of(name).map(|desired| desired.version.to_string());
            let (state, desired) =
                (state.unwrap_or_else(|| "nothing".into()), desired.unwrap_or_else(|| "nothing".into()));
            let presence = node.presence.as_ref().map(|(presence, _)| presence);
            let server = presence.and_then(|presence| presence.replica.as_ref());
            let server = server.map_or_else(|| "no server".to_owned(), ToString::to_string);
            format!("{name}: {state}, desired version {desired}, connected to {server}")
        };
        self.checker.fleet().nodes().map(line).collect()
    }

    pub fn now(&self) -> SimTime {
        self.now
    }

    pub fn log(&self) -> &EventLog {
        &self.log
    }

    pub fn tally(&self) -> &FaultCounts {
        &self.faults.counts
    }

    pub(crate) fn any_replica(&mut self) -> ReplicaNumber {
        self.rng.below(self.replicas.len() as u64) as usize
    }

    pub(crate) fn any_machine(&mut self) -> MachineNumber {
        self.rng.below(self.machines.len() as u64) as usize
    }
}
