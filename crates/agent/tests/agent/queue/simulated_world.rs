//! An agent without a machine: its queue, a disk in memory, runs that end as they are told to, and a server that takes reports
//! by their numbers. It dies before any given thing that it does, and only the disk is left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use muster_agent::applier::Applied;
use muster_agent::backoff::Backoff;
use muster_agent::clock::EventTime;
use muster_agent::node::Node;
use muster_agent::queue::io::Effect;
use muster_agent::queue::io::{AcceptedReport, Input};
use muster_agent::queue::state_machine::{InitialState, RunQueue, Timings};
use muster_agent::report::dispatch::{Dispatch, NextSend, ReportAnswer, ReportDisposition};
use muster_agent::run::{WorkOrder, report_builder};
use muster_agent::state::directory::Layout;
use muster_agent::state::ledger::{AppliedRelease, Ledger, Work};
use muster_core::lookup::Lookups;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{EnvName, NodeName, RunId};
use muster_core::report::{Report, RunResult};
use muster_wire::sync::{DesiredState, ReportResult};

/// It is not there any more.
#[derive(Debug)]
pub(super) struct Killed;

/// What a kill leaves.
#[derive(Debug, Default)]
struct Disk {
    ledger: Option<Vec<u8>>,
    snapshot: Option<Snapshot>,
    outbox: BTreeMap<u64, Report>,
}

/// What has become of the orders, over all lives of the agent.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) orders: Vec<WorkOrder>,
    /// By the server, in the order in which it took them.
    pub(super) taken: Vec<Report>,
}

pub(super) struct World {
    node: Arc<Node>,
    disk: Disk,
    queue: RunQueue,
    dispatch: Dispatch,
    /// What runs on the node; it outlives the agent.
    processes: BTreeSet<RunId>,
    /// The order that the agent of this life has given.
    given: Option<WorkOrder>,
    pub(super) seen: Seen,
    base: Instant,
    passed: Duration,
    /// How many things it does before it dies.
    pub(super) left: usize,
    /// Whether a server takes reports.
    pub(super) reachable: bool,
    /// Whether the releases that it ran before are still on the node.
    pub(super) on_shelf: bool,
}

impl World {
    pub(super) fn new(left: usize) -> Self {
        let node = Arc::new(Node {
            env: EnvName::new("test").unwrap(),
            name: NodeName::new("web1").unwrap(),
            interfaces: Default::default(),
            boot: Some("b".into()),
            root: "/".into(),
            puppet: "puppet".into(),
            layout: Layout::at(Path::new("/nowhere")),
        });
        let disk = Disk::default();
        let queue = awake(&node, &disk);
        Self {
            node,
            disk,
            queue,
            dispatch: Dispatch::default(),
            processes: BTreeSet::new(),
            given: None,
            seen: Seen::default(),
            base: Instant::now(),
            passed: Duration::ZERO,
            left,
            reachable: true,
            on_shelf: true,
        }
    }

    /// Another life, with what is on the disk.
    pub(super) fn restart(&mut self) {
        (self.queue, self.dispatch, self.given) = (awake(&self.node, &self.disk), Dispatch::default(), None);
    }

    pub(super) fn ledger(&self) -> &Ledger {
        self.queue.ledger()
    }

    pub(super) fn waits_to_be_sent(&self) -> usize {
        self.disk.outbox.len()
    }

    fn now(&self) -> EventTime {
        let clock = Timestamp::UNIX_EPOCH + SignedDuration::try_from(self.passed).unwrap();
        EventTime { instant: self.base + self.passed, up: self.passed, clock, chance: 0.5 }
    }

    /// Whether the agent lives to do one thing more.
    fn lives(&mut self) -> Result<(), Killed> {
        self.left = self.left.checked_sub(1).ok_or(Killed)?;
        Ok(())
    }

    /// Lets something happen, and has done what the queue says. True if a run was let go on.
    pub(super) fn happens(&mut self, input: Input) -> Result<bool, Killed> {
        let (mut next, mut acknowledged) = (Some(input), false);
        while let Some(input) = next.take() {
            for effect in self.queue.handle(input, self.now()) {
                self.lives()?;
                match effect {
                    Effect::EndProcesses(run) => {
                        self.processes.remove(&run.run);
                        next = Some(Input::ProcessesEnded);
                    }
                    Effect::SaveLedger(ledger) => self.disk.ledger = Some(serde_json::to_vec(&ledger).unwrap()),
                    Effect::SaveSnapshot(snapshot) => self.disk.snapshot = Some((*snapshot).clone()),
                    Effect::StoreReport(report) => drop(self.disk.outbox.insert(report.seq, *report)),
                    Effect::Acknowledge => acknowledged = true,
                    Effect::CheckRelease(desired) => {
                        let problem = (!self.on_shelf).then(|| format!("{} is gone", desired.version));
                        next = Some(Input::ReleaseChecked { problem });
                    }
                    Effect::StartWork(order) => self.begin(*order),
                    Effect::WakeSender | Effect::IncarnationRenewed | Effect::Publish(_) => {}
                }
            }
        }
        Ok(acknowledged)
    }

    fn begin(&mut self, order: WorkOrder) {
        assert_eq!(self.processes, BTreeSet::new(), "a second one beside {:?}", order.run);
        let written: Ledger = serde_json::from_slice(self.disk.ledger.as_ref().unwrap()).unwrap();
        assert_eq!(written.running.as_ref(), Some(&order.run), "what begins is written down");
        assert_eq!(self.disk.snapshot.as_ref(), Some(&*order.snapshot), "and so is what it sees");
        if let Some(before) = self.seen.orders.last() {
            assert!(before.run.seq + 1 < order.run.seq, "numbers only grow, and no run takes that of another");
            assert_ne!(before.run.run, order.run.run);
        }
        self.processes.insert(order.run.run.clone());
        self.seen.orders.push(order.clone());
        self.given = Some(order);
    }

    /// Lets time pass and runs end until the node has come to rest: nothing is left but checks by the clock.
    pub(super) fn settle(&mut self) -> Result<(), Killed> {
        for _ in 0..100 {
            if self.given.is_none() {
                self.send_all()?;
                if self.rests() {
                    return Ok(());
                }
            }
            self.step()?;
        }
        panic!("it does not come to rest: {:?}", self.queue);
    }

    /// Lets what goes on end or, if nothing does, time pass.
    pub(super) fn step(&mut self) -> Result<(), Killed> {
        match self.given.take() {
            Some(order) => self.ends(&order),
            None => self.next_tick(),
        }
    }

    /// Goes on until a run has ended that nobody has confirmed.
    pub(super) fn until_unconfirmed(&mut self) {
        while self.given.is_some() || !self.ledger().awaits_confirmation() {
            self.step().unwrap();
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.passed += time;
    }

    /// Lets time pass until there is something to do.
    pub(super) fn next_tick(&mut self) -> Result<(), Killed> {
        let wake = self.queue.wake_at().expect("it would wait for ever");
        self.passed = self.passed.max(wake.duration_since(self.base));
        self.happens(Input::Tick).map(drop)
    }

    fn rests(&self) -> bool {
        let ledger = self.ledger();
        let (last, desired) = (ledger.last.as_ref(), ledger.desired.as_ref());
        let is_made = last.map(|last| last.generation) == desired.map(|desired| desired.generation);
        is_made
            && !ledger.awaits_confirmation()
            && ledger.running.is_none()
            && ledger.waiting.is_empty()
            && ledger.previews.is_empty()
    }

    /// All ends well.
    fn ends(&mut self, order: &WorkOrder) -> Result<(), Killed> {
        self.passed += Duration::from_secs(3);
        let (node, now) = (Arc::clone(&self.node), self.now().clock);
        let changed = Applied::succeeded(RunResult::Changed);
        let report = report_builder::configured(&node, order, changed, Lookups::new(), String::new(), now);
        match order.run.work {
            Work::Preview => {
                self.processes.remove(&order.run.run);
                self.happens(Input::Previewed { report: Box::new(report_builder::previewed(report)) })?;
            }
            Work::Run => {
                let applied = Box::new(applied(&order.desired));
                assert!(self.happens(Input::Configured { report: Box::new(report.clone()), applied })?);
                assert_eq!(self.disk.outbox.get(&report.seq), Some(&report), "nobody goes on before it is kept");
                self.passed += Duration::from_secs(1);
                let checked = report_builder::validated(order, report, Vec::new(), String::new(), self.now().clock);
                self.processes.remove(&order.run.run);
                self.happens(report_builder::finished(order, Report { seq: order.run.seq + 1, ..checked }))?;
            }
            Work::Validation => {
                self.processes.remove(&order.run.run);
                let checked = report_builder::validated(order, report, Vec::new(), String::new(), now);
                self.happens(Input::Validated { report: Some(Box::new(checked)) })?;
            }
            Work::Hooks => unreachable!("there are none in these releases"),
        }
        Ok(())
    }

    /// The sender's turns until nothing waits.
    fn send_all(&mut self) -> Result<(), Killed> {
        while self.reachable {
            let first = self.disk.outbox.values().next();
            let report = match self.dispatch.next(first, self.queue.published().sync_state.incarnation) {
                NextSend::Idle => return Ok(()),
                NextSend::NoIncarnation => unreachable!("the server has said hello"),
                NextSend::Send(report) => report,
            };
            self.lives()?;
            let known = self.seen.taken.last().map_or(0, |last| last.seq);
            let taken = match report.seq.cmp(&known) {
                std::cmp::Ordering::Greater => ReportResult::Applied,
                std::cmp::Ordering::Equal => ReportResult::AlreadyApplied,
                std::cmp::Ordering::Less => panic!("{} is reported after {known}", report.seq),
            };
            let (seq, generation, of_it) = (report.seq, report.generation, AcceptedReport::from(&*report));
            if taken == ReportResult::Applied {
                self.seen.taken.push(*report);
            }
            // What the server has taken the agent may never hear of.
            self.lives()?;
            assert_eq!(self.dispatch.answered(seq, ReportAnswer::Taken(taken)), ReportDisposition::Remove);
            if self.queue.published().awaited == Some(generation) {
                assert!(self.happens(Input::ReportAccepted(of_it))?);
                self.lives()?;
            }
            self.disk.outbox.remove(&seq);
        }
        Ok(())
    }
}

fn awake(node: &Arc<Node>, disk: &Disk) -> RunQueue {
    let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes).unwrap();
    let ledger = disk.ledger.as_ref().map_or_else(|| Ledger::new(node.env.clone(), node.name.clone()), read);
    let retry = Backoff { first: Duration::from_secs(5), cap: Duration::from_secs(300) };
    let found = InitialState { ledger, snapshot: disk.snapshot.clone(), last_snapshot: None };
    RunQueue::new(Arc::clone(node), found, Timings { debounce: Duration::from_millis(10), retry })
}

fn applied(desired: &DesiredState) -> AppliedRelease {
    AppliedRelease { desired: desired.clone(), validate_every: SignedDuration::from_mins(5), hooks: Vec::new() }
}
