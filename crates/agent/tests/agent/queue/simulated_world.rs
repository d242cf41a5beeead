//! A simulated node: the agent's queue, a disk in memory, runs that always succeed, and a server that accepts reports by
//! their sequence numbers. The agent is killed before a given effect, and only the disk is left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use muster_agent::applier::ApplierResult;
use muster_agent::backoff::RetryBackoff;
use muster_agent::clock::EventTime;
use muster_agent::config::AgentNode;
use muster_agent::interfaces::NodeInterfaces;
use muster_agent::queue::io::{AcceptedReport, Effect, Input};
use muster_agent::queue::state_machine::{FirstWork, InitialState, RunQueue, Timings};
use muster_agent::report::dispatch::{Dispatch, NextSend, ReportDisposition, ServerAnswer};
use muster_agent::report::unsent::UnsentReport;
use muster_agent::run::{WorkOrder, report_builder};
use muster_agent::state::directory::Layout;
use muster_agent::state::ledger::{AppliedRelease, Ledger, RunPhase, Work};
use muster_core::lookup::Lookups;
use muster_core::lookup::snapshot::Snapshot;
use muster_core::names::{EnvName, NodeName, RunId};
use muster_core::release::timed_runs::DriftPolicy;
use muster_core::report::Interfaces;
use muster_core::report::{Report, ResourceChange, RunResult};
use muster_wire::sync::{DesiredState, ReportResult};

/// The agent was killed.
#[derive(Debug)]
pub(super) struct Killed;

/// State that survives a kill.
#[derive(Debug, Default)]
struct SimulatedDisk {
    ledger: Option<Vec<u8>>,
    snapshot: Option<Snapshot>,
    outbox: BTreeMap<u64, UnsentReport>,
}

/// Orders and reports over all restarts of the agent.
#[derive(Debug, Default)]
pub(super) struct WorldLog {
    pub(super) orders: Vec<WorkOrder>,
    /// Reports in the order in which the server accepted them.
    pub(super) accepted: Vec<Report>,
}

pub(super) struct SimulatedWorld {
    node: Arc<AgentNode>,
    disk: SimulatedDisk,
    queue: RunQueue,
    dispatch: Dispatch,
    /// Running processes, which outlive the agent.
    processes: BTreeSet<RunId>,
    /// Runs whose applier has ended, with its result on disk.
    applied: BTreeSet<RunId>,
    /// Runs whose processes were ended by a reboot.
    lost: BTreeSet<RunId>,
    /// The work in progress of the current agent.
    current: Option<WorkOrder>,
    pub(super) log: WorldLog,
    base: Instant,
    passed: Duration,
    /// Number of effects before the agent is killed.
    pub(super) left: usize,
    /// A server accepts reports.
    pub(super) reachable: bool,
    /// Previous releases are still in the cache.
    pub(super) is_cached: bool,
    /// Interval of timed runs of its releases.
    pub(super) run_every: Option<SignedDuration>,
    pub(super) drift: DriftPolicy,
    /// Result of its appliers.
    pub(super) result: RunResult,
    pub(super) changes: Vec<ResourceChange>,
    /// Difference of the wall clock.
    pub(super) clock_off: SignedDuration,
}

impl SimulatedWorld {
    pub(super) fn new(left: usize) -> Self {
        let node = Arc::new(AgentNode {
            env: EnvName::new("test").unwrap(),
            name: NodeName::new("web1").unwrap(),
            host: None,
            certname: None,
            interfaces: NodeInterfaces::Configured(Interfaces::new()),
            holder: None,
            every: None,
            boot: Some("b".into()),
            root: "/".into(),
            puppet: "puppet".into(),
            puppet_conf: None,
            puppet_agent_lock: None,
            layout: Layout::at(Path::new("/nowhere")),
        });
        let disk = SimulatedDisk::default();
        let queue = start(&node, &disk);
        Self {
            node,
            disk,
            queue,
            dispatch: Dispatch::default(),
            processes: BTreeSet::new(),
            applied: BTreeSet::new(),
            lost: BTreeSet::new(),
            current: None,
            log: WorldLog::default(),
            base: Instant::now(),
            passed: Duration::ZERO,
            left,
            reachable: true,
            is_cached: true,
            run_every: None,
            drift: DriftPolicy::Repair,
            result: RunResult::Changed,
            changes: Vec::new(),
            clock_off: SignedDuration::ZERO,
        }
    }

    /// Restarts the agent with the state on the disk.
    pub(super) fn restart(&mut self) {
        (self.queue, self.dispatch, self.current) = (start(&self.node, &self.disk), Dispatch::default(), None);
    }

    /// Restarts the machine: all processes are gone.
    pub(super) fn reboot(&mut self) {
        self.lost.append(&mut self.processes);
        self.restart();
    }

    pub(super) fn ledger(&self) -> &Ledger {
        self.queue.ledger()
    }

    pub(super) fn unsent_reports(&self) -> usize {
        self.disk.outbox.len()
    }

    fn now(&self) -> EventTime {
        let clock = Timestamp::UNIX_EPOCH + SignedDuration::try_from(self.passed).unwrap() + self.clock_off;
        EventTime { instant: self.base + self.passed, up: self.passed, clock, chance: 0.5 }
    }

    /// Counts one effect.
    fn count_effect(&mut self) -> Result<(), Killed> {
        self.left = self.left.checked_sub(1).ok_or(Killed)?;
        Ok(())
    }

    /// Handles an input and carries out the effects. True if it was acknowledged.
    pub(super) fn happens(&mut self, input: Input) -> Result<bool, Killed> {
        let (mut next, mut acknowledged) = (Some(input), false);
        while let Some(input) = next.take() {
            for effect in self.queue.handle(input, self.now()) {
                self.count_effect()?;
                match effect {
                    Effect::SaveLedger(ledger) => self.disk.ledger = Some(serde_json::to_vec(&ledger).unwrap()),
                    Effect::SaveSnapshot(snapshot) => self.disk.snapshot = Some((*snapshot).clone()),
                    Effect::StoreReport(report) => drop(self.disk.outbox.insert(report.seq, *report)),
                    Effect::Acknowledge => acknowledged = true,
                    Effect::CheckRelease(desired) => {
                        let problem = (!self.is_cached).then(|| format!("{} is gone", desired.version));
                        next = Some(Input::ReleaseChecked { problem });
                    }
                    Effect::StartWork(order) => self.begin(*order),
                    Effect::AdoptWork(order) => next = self.adopt(*order),
                    Effect::WakeSender | Effect::IncarnationRenewed | Effect::Publish(_) => {}
                }
            }
        }
        Ok(acknowledged)
    }

    /// Continues a run of an earlier agent. Returns the input if there is nothing to continue.
    fn adopt(&mut self, order: WorkOrder) -> Option<Input> {
        let run = &order.run.run;
        match order.run.work {
            // The applier outlives the agent, and its result is kept.
            Work::Run if self.processes.contains(run) || self.applied.contains(run) => {
                self.current = Some(order);
                None
            }
            Work::Run if self.lost.contains(run) => {
                Some(report_builder::lost(&self.node, &order, Vec::new(), String::new(), self.now().clock))
            }
            // The agent was killed before it started the applier.
            Work::Run => Some(Input::NotContinued),
            Work::Preview | Work::Hooks | Work::Validation => {
                self.processes.remove(run);
                Some(Input::NotContinued)
            }
        }
    }

    fn begin(&mut self, order: WorkOrder) {
        assert_eq!(self.processes, BTreeSet::new(), "a second run besides {:?}", order.run);
        let written: Ledger = serde_json::from_slice(self.disk.ledger.as_ref().unwrap()).unwrap();
        assert_eq!(written.running.as_ref(), Some(&order.run), "the started run is stored");
        assert_eq!(self.disk.snapshot.as_ref(), Some(&*order.snapshot), "and its snapshot too");
        if let Some(before) = self.log.orders.last() {
            assert!(before.run.seq + 1 < order.run.seq, "sequence numbers grow and are unique");
            assert_ne!(before.run.run, order.run.run);
        }
        self.processes.insert(order.run.run.clone());
        self.log.orders.push(order.clone());
        self.current = Some(order);
    }

    /// Advances time and runs until only periodic validations are left.
    pub(super) fn settle(&mut self) -> Result<(), Killed> {
        for _ in 0..100 {
            if self.current.is_none() {
                self.send_all()?;
                if self.is_converged() {
                    return Ok(());
                }
            }
            self.step()?;
        }
        panic!("the node does not converge: {:?}", self.queue);
    }

    /// Ends the work in progress, or advances the time.
    pub(super) fn step(&mut self) -> Result<(), Killed> {
        match self.current.take() {
            Some(order) => self.finish(&order),
            None => self.next_tick(),
        }
    }

    /// Continues until a run has ended that awaits a confirmation.
    pub(super) fn until_unconfirmed(&mut self) {
        while self.current.is_some() || !self.ledger().awaits_confirmation() {
            self.step().unwrap();
        }
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.passed
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.passed += time;
    }

    /// Advances the time to the next tick.
    pub(super) fn next_tick(&mut self) -> Result<(), Killed> {
        let wake = self.queue.wake_at().expect("the queue never wakes up");
        self.passed = self.passed.max(wake.duration_since(self.base));
        self.happens(Input::Tick).map(drop)
    }

    fn is_converged(&self) -> bool {
        let ledger = self.ledger();
        let (last, desired) = (ledger.last.as_ref(), ledger.desired.as_ref());
        let is_made = last.map(|last| last.generation) == desired.map(|desired| desired.generation);
        is_made
            && !ledger.awaits_confirmation()
            && ledger.running.is_none()
            && ledger.waiting.is_empty()
            && ledger.previews.is_empty()
    }

    /// Ends the work successfully.
    fn finish(&mut self, order: &WorkOrder) -> Result<(), Killed> {
        self.passed += Duration::from_secs(3);
        let (node, now) = (Arc::clone(&self.node), self.now().clock);
        let result = ApplierResult { changes: self.changes.clone(), ..ApplierResult::succeeded(self.result) };
        let report = report_builder::configured(&node, order, result, Lookups::new(), String::new(), now);
        match order.run.work {
            Work::Preview => {
                self.processes.remove(&order.run.run);
                self.happens(Input::Previewed { report: Box::new(report_builder::previewed(report)) })?;
            }
            Work::Run => {
                self.processes.remove(&order.run.run);
                self.applied.insert(order.run.run.clone());
                if order.run.phase == RunPhase::Applying {
                    let applied = Box::new(applied(&order.desired, self.run_every, self.drift));
                    assert!(self.happens(Input::Configured { report: Box::new(report.clone()), applied })?);
                    let stored = self.disk.outbox.get(&report.seq);
                    let is_silent = self.ledger().running.as_ref().is_some_and(|running| running.unchanged);
                    assert_eq!(stored, Some(&report).filter(|_| !is_silent), "it is stored before the checks");
                }
                self.passed += Duration::from_secs(1);
                let checked = report_builder::validated(order, report, Vec::new(), String::new(), self.now().clock);
                self.happens(report_builder::finished(order, UnsentReport { seq: order.run.seq + 1, ..checked }))?;
            }
            Work::Validation => {
                self.processes.remove(&order.run.run);
                let checked = report_builder::validated(order, report, Vec::new(), String::new(), now);
                self.happens(Input::Validated { report: Some(Box::new(checked)) })?;
            }
            Work::Hooks => unreachable!("these releases have no hooks"),
        }
        Ok(())
    }

    /// Sends all reports in the outbox.
    fn send_all(&mut self) -> Result<(), Killed> {
        while self.reachable {
            let first = self.disk.outbox.values().next();
            let report = match self.dispatch.next(first, self.queue.published().sync_state.incarnation) {
                NextSend::Idle => return Ok(()),
                NextSend::NoIncarnation => unreachable!("the agent has an incarnation"),
                NextSend::Send(report) => report,
            };
            self.count_effect()?;
            let known = self.log.accepted.last().map_or(0, |last| last.seq);
            let taken = match report.seq.cmp(&known) {
                std::cmp::Ordering::Greater => ReportResult::Applied,
                std::cmp::Ordering::Equal => ReportResult::AlreadyApplied,
                std::cmp::Ordering::Less => panic!("{} is reported after {known}", report.seq),
            };
            let (seq, generation, of_it) = (report.seq, report.generation, AcceptedReport::from(&*report));
            if taken == ReportResult::Applied {
                self.log.accepted.push(*report);
            }
            // The answer may get lost.
            self.count_effect()?;
            assert_eq!(self.dispatch.answered(seq, ServerAnswer::Taken(taken)), ReportDisposition::Remove);
            if self.queue.published().awaited == Some(generation) {
                assert!(self.happens(Input::ReportAccepted(of_it))?);
                self.count_effect()?;
            }
            self.disk.outbox.remove(&seq);
        }
        Ok(())
    }
}

fn start(node: &Arc<AgentNode>, disk: &SimulatedDisk) -> RunQueue {
    let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes).unwrap();
    let ledger = disk.ledger.as_ref().map_or_else(|| Ledger::new(node.env.clone(), node.name.clone()), read);
    let retry = RetryBackoff { first: Duration::from_secs(5), cap: Duration::from_secs(300) };
    let snapshot = disk.snapshot.clone();
    let found = InitialState { ledger, snapshot, last_snapshot: None, running_snapshot: None };
    RunQueue::new(
        Arc::clone(node),
        found,
        Timings { debounce: Duration::from_millis(10), retry, first: FirstWork::Run },
    )
}

fn applied(desired: &DesiredState, run_every: Option<SignedDuration>, drift: DriftPolicy) -> AppliedRelease {
    let validate_every = SignedDuration::from_mins(5);
    AppliedRelease { desired: desired.clone(), validate_every, run_every, drift, hooks: Vec::new() }
}
