//! One node: a machine with its disk, its agent, and the agent's processes. The agent's decisions are those of the real
//! [`RunQueue`]. Its effects run one by one here, and the agent can be killed between any two of them.

mod applier;
mod effects;
mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use muster_agent::backoff::RetryBackoff;
use muster_agent::config::AgentNode;
use muster_agent::interfaces::NodeInterfaces;
use muster_agent::queue::io::{Effect, Input, QueueStatus};
use muster_agent::queue::state_machine::{FirstWork, InitialState, RunQueue, Timings};
use muster_agent::report::dispatch::Dispatch;
use muster_agent::report::unsent::UnsentReport;
use muster_agent::state::directory::Layout;
use muster_agent::state::ledger::Ledger;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{EnvName, NodeName, RunId, Version};

pub(crate) use self::applier::Applier;
use self::applier::ApplierEnd;
use super::checker::AgentLife;
use super::event::{AgentEvent, Event, MachineEvent, MachineNumber, ReplicaNumber, SessionNumber, SimTime};
use super::faults::Fault;
use super::world::World;

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) name: NodeName,
    pub(crate) domain: String,
    /// Incremented with each start of the agent.
    pub(crate) life: u64,
    pub(crate) up: bool,
    boots: u64,
    node: Arc<AgentNode>,
    pub(crate) disk: Disk,
    pub(crate) queue: Option<RunQueue>,
    effects: EffectQueue,
    tick_at: Option<SimTime>,
    pub(crate) status: QueueStatus,
    pub(crate) stream: StreamState,
    sender: SenderState,
    /// The receiver of the next acknowledgement.
    ack_receiver: AckReceiver,
    pub(crate) cut_off_until: Option<SimTime>,
    pub(crate) cut_offs: u64,
    pub(crate) applier: Option<Applier>,
    appliers: u64,
    /// The result of the last applier.
    ended: Option<ApplierEnd>,
    /// The last run whose applier was ended in a reboot.
    lost: Option<RunId>,
    /// The version that the applier last applied.
    pub(crate) runs: Option<Version>,
    /// It broke without a run, and its checks fail.
    pub(crate) broken: bool,
}

/// Effects of the agent's queue that are not run yet, and the inputs that follow.
#[derive(Clone, Debug, Default)]
struct EffectQueue {
    queued: VecDeque<Effect>,
    inbox: VecDeque<Input>,
    /// A slow write is in progress.
    writing: bool,
    slow_until: SimTime,
    /// The agent is killed after this many effects.
    crash_after: Option<u64>,
}

/// The agent's end of its stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamState {
    pub(crate) session: Option<SessionNumber>,
    route: ReplicaNumber,
    dials: u32,
    /// Another incarnation is needed.
    renewing: bool,
    /// The open stream has requested another incarnation.
    asks_anew: bool,
}

/// The sender of reports.
#[derive(Clone, Debug, Default)]
struct SenderState {
    dispatch: Dispatch,
    ticket: u64,
    in_flight: Option<u64>,
}

/// The receiver of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckReceiver {
    None,
    /// The run, before its checks.
    Run,
    /// The sender, before it removes a report.
    Sender,
}

/// State that survives the agent.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    pub(crate) ledger: Ledger,
    snapshot: Option<Arc<Snapshot>>,
    /// The snapshot of the last run, or of the one in progress.
    seen: Option<Arc<Snapshot>>,
    pub(crate) outbox: BTreeMap<u64, UnsentReport>,
    /// The highest serial that the node has validated.
    pub(crate) highest: u64,
}

impl Machine {
    pub(crate) fn new(env: &EnvName, name: NodeName, domain: String) -> Self {
        let node = made_node(env, &name, 1);
        let ledger = Ledger::new(env.clone(), name.clone());
        let disk = Disk { ledger, snapshot: None, seen: None, outbox: BTreeMap::new(), highest: 0 };
        Self {
            name,
            domain,
            life: 0,
            up: false,
            boots: 1,
            node,
            disk,
            queue: None,
            effects: EffectQueue::default(),
            tick_at: None,
            status: QueueStatus::default(),
            stream: StreamState::default(),
            sender: SenderState::default(),
            ack_receiver: AckReceiver::None,
            cut_off_until: None,
            cut_offs: 0,
            applier: None,
            appliers: 0,
            ended: None,
            lost: None,
            runs: None,
            broken: false,
        }
    }

    fn agent_life(&self) -> AgentLife {
        AgentLife { incarnation: self.disk.ledger.incarnation, boots: self.boots }
    }

    pub(crate) fn is_cut_off(&self, now: SimTime) -> bool {
        self.cut_off_until.is_some_and(|until| now < until)
    }
}

/// Its paths are never opened.
fn made_node(env: &EnvName, name: &NodeName, boots: u64) -> Arc<AgentNode> {
    Arc::new(AgentNode {
        env: env.clone(),
        name: name.clone(),
        host: None,
        certname: None,
        interfaces: NodeInterfaces::Configured([("eth0".to_owned(), format!("10.0.0.{}", name.natural().1))].into()),
        holder: None,
        every: None,
        boot: Some(format!("{name}-boot-{boots}")),
        root: Path::new("/").into(),
        puppet: Path::new("puppet").into(),
        puppet_conf: None,
        puppet_agent_lock: None,
        layout: Layout::at(Path::new("/nowhere")),
    })
}

/// Failed runs are retried within seconds, since simulated rollouts take minutes.
const TIMINGS: Timings = Timings {
    debounce: Duration::from_millis(200),
    retry: RetryBackoff { first: Duration::from_secs(4), cap: Duration::from_secs(30) },
    first: FirstWork::Run,
};

impl World {
    pub(crate) fn start_agent(&mut self, number: MachineNumber) {
        let machine = &mut self.machines[number];
        machine.life += 1;
        machine.up = true;
        let Disk { ledger, snapshot, seen, .. } = machine.disk.clone();
        let read = |file: Option<Arc<Snapshot>>| file.map(|file| (*file).clone());
        let (snapshot, last_snapshot, running_snapshot) = (read(snapshot), read(seen.clone()), read(seen));
        let found = InitialState { ledger, snapshot, last_snapshot, running_snapshot };
        let queue = RunQueue::new(Arc::clone(&machine.node), found, TIMINGS);
        machine.status = queue.published().clone();
        machine.queue = Some(queue);
        machine.effects.queued.clear();
        machine.effects.inbox.clear();
        machine.effects.writing = false;
        machine.effects.crash_after = None;
        machine.tick_at = None;
        machine.stream.session = None;
        machine.stream.renewing = false;
        machine.sender.dispatch = Dispatch::default();
        machine.sender.in_flight = None;
        machine.ack_receiver = AckReceiver::None;
        machine.stream.dials = 0;
        let life = machine.life;
        self.note_reach(number);
        self.log_node(number, format_args!("its agent starts"));
        self.handle_input(number, Input::Started);
        self.queue.schedule(self.now, Event::Agent { machine: number, life, what: AgentEvent::Dials });
        self.wake_sender(number);
    }

    /// Kills the agent: state that is not on disk is lost. Its processes continue.
    pub(crate) fn crash_agent(&mut self, number: MachineNumber, back_after: Duration) {
        let machine = &mut self.machines[number];
        if !machine.up {
            return;
        }
        machine.up = false;
        machine.queue = None;
        machine.effects.queued.clear();
        machine.effects.inbox.clear();
        let life = machine.life;
        self.checker.agent_killed(number);
        self.note_reach(number);
        let machine = &mut self.machines[number];
        if let Some(session) = machine.stream.session.take() {
            self.close_agent_end(session);
            self.notify_replica_of_loss(session);
        }
        self.queue.schedule(self.now + back_after, Event::Agent { machine: number, life, what: AgentEvent::Starts });
    }

    /// Records the reachability of a machine for the checker.
    pub(crate) fn note_reach(&mut self, number: MachineNumber) {
        let machine = &self.machines[number];
        self.checker.set_reachable(number, machine.up && !machine.is_cut_off(self.now), self.now);
    }

    pub(crate) fn reboot(&mut self, number: MachineNumber) {
        self.count_fault(Fault::NodeRebooted);
        self.log_node(number, format_args!("reboots"));
        self.end_applier(number);
        let back = self.random_between(2_000, 15_000);
        if self.machines[number].up {
            self.crash_agent(number, back);
        }
        let machine = &mut self.machines[number];
        machine.boots += 1;
        machine.node = made_node(&self.env, &machine.name, machine.boots);
        self.checker.rebooted(number);
    }

    /// Kills an agent after some more effects.
    pub(crate) fn kill_after(&mut self, number: MachineNumber, effects: u64) {
        self.machines[number].effects.crash_after = Some(effects);
    }

    pub(crate) fn slow_disk(&mut self, number: MachineNumber, until: SimTime) {
        self.machines[number].effects.slow_until = until;
    }

    pub(crate) fn agent_event(&mut self, number: MachineNumber, what: AgentEvent) {
        match what {
            // For an earlier life.
            AgentEvent::Starts => {}
            AgentEvent::Tick => {
                let machine = &mut self.machines[number];
                if machine.tick_at.is_some_and(|at| at <= self.now) {
                    machine.tick_at = None;
                    self.input(number, Input::Tick);
                }
            }
            AgentEvent::DiskDone => {
                self.machines[number].effects.writing = false;
                self.run_effects(number);
            }
            AgentEvent::Dials => self.dial(number),
            AgentEvent::Received { session, message } => self.message_received(number, session, *message),
            AgentEvent::SessionLost { session } => self.session_lost(number, session),
            AgentEvent::OpeningTimedOut { session } => self.opening_timed_out(number, session),
            AgentEvent::SendsAgain { ticket } => {
                if self.machines[number].sender.ticket == ticket {
                    self.wake_sender(number);
                }
            }
            AgentEvent::Answered { ticket, answer } => self.report_answered(number, ticket, answer),
        }
    }

    pub(crate) fn machine_event(&mut self, number: MachineNumber, what: MachineEvent) {
        match what {
            MachineEvent::ApplierEnds { number: applier } => self.applier_ends(number, applier),
            MachineEvent::ChecksEnd { number: applier } => self.checks_end(number, applier),
            MachineEvent::Recovers => {
                self.machines[number].broken = false;
                self.log_node(number, format_args!("recovers"));
            }
        }
    }
}
