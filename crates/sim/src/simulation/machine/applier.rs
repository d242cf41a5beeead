//! The simulated applier and the checks after it, with durations and results of the release. The applier outlives an agent
//! that is killed, and the next agent adopts it or reads its result. Checks are made again.

use muster_agent::applier::ApplierResult;
use muster_agent::queue::io::Input;
use muster_agent::report::unsent::UnsentReport;
use muster_agent::run::{WorkOrder, report_builder};
use muster_agent::state::ledger::{AppliedRelease, RunPhase, Work};
use muster_core::lookup::Lookups;
use muster_core::names::{Role, RunId, Version};
use muster_core::report::reason::{Need, ReleaseRefusal, RunReason};
use muster_core::report::{CheckResult, RunResult, Verdict};

use crate::simulation::event::{Event, MachineEvent, MachineNumber};
use crate::simulation::faults::Fault;
use crate::simulation::fleet::RunEnding;
use crate::simulation::world::World;

#[derive(Clone, Debug)]
pub(crate) struct Applier {
    number: u64,
    /// The life of the agent that started or adopted it. No other one learns its result.
    agent: u64,
    order: Box<WorkOrder>,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    Applying {
        ending: RunEnding,
    },
    /// Its result is being recorded.
    Done {
        report: Box<UnsentReport>,
    },
    Checking {
        report: Box<UnsentReport>,
        passes: bool,
    },
}

/// The result of an applier, which its supervisor has written to the disk.
#[derive(Clone, Debug)]
pub(super) struct ApplierEnd {
    run: RunId,
    ending: RunEnding,
    /// The version was applied before.
    unchanged: bool,
}

impl Applier {
    pub(crate) fn run(&self) -> &RunId {
        &self.order.run.run
    }

    pub(crate) fn version(&self) -> &Version {
        &self.order.run.version
    }
}

impl World {
    pub(super) fn start_applier(&mut self, number: MachineNumber, order: Box<WorkOrder>) {
        let gave_up = self.machines[number].disk.ledger.rolled_back_generation() == Some(order.run.generation);
        self.checker.applier_starts(number, self.machines[number].applier.is_some(), gave_up, &order.run);
        self.log_violations();
        self.machines[number].appliers += 1;
        self.timed_runs += u64::from(order.run.is_timed());
        let applier = self.machines[number].appliers;
        let agent = self.machines[number].life;
        let (name, version) = (self.machines[number].name.clone(), order.run.version.clone());
        match order.run.work {
            Work::Run | Work::Preview | Work::Hooks => {
                let ending = self.ending(number, &order);
                let causes: Vec<String> = order.run.causes.iter().map(ToString::to_string).collect();
                self.log_event(format_args!("{name}: applies {version} ({})", causes.join("; ")));
                let takes = self.apply_time(&order.run.version);
                self.queue.schedule(
                    self.now + takes,
                    Event::Machine { machine: number, what: MachineEvent::ApplierEnds { number: applier } },
                );
                self.machines[number].applier =
                    Some(Applier { number: applier, agent, order, phase: Phase::Applying { ending } });
            }
            Work::Validation => {
                let report = self.account(number, &order, ApplierResult::none(), Lookups::new());
                self.machines[number].applier =
                    Some(Applier { number: applier, agent, order, phase: Phase::Done { report: Box::new(report) } });
                self.check(number);
            }
        }
    }

    /// The end of the run.
    fn ending(&mut self, number: MachineNumber, order: &WorkOrder) -> RunEnding {
        if order.desired.serial < self.machines[number].disk.highest && !order.desired.allow_older {
            return RunEnding::Refused;
        }
        let name = self.machines[number].name.clone();
        let lacks: Vec<Need> = self.needs(order).into_iter().filter(|need| order.snapshot.still_lacks(need)).collect();
        if !lacks.is_empty() {
            self.count_fault(Fault::RunPending);
            return RunEnding::Pending(lacks);
        }
        // A run that fails at random is retried until it succeeds. Timed runs never end, so they fail only while there are
        // faults.
        let may_flake = !order.run.is_timed() || self.now < self.faults.calm_from;
        let ending = self.releases.ending(&order.run.version, &name, may_flake, &mut self.rng);
        match &ending {
            RunEnding::Failed => self.count_fault(Fault::RunFailed),
            RunEnding::Invalid => self.count_fault(Fault::ValidationFailed),
            RunEnding::Pending(_) => self.count_fault(Fault::RunPending),
            RunEnding::Well | RunEnding::Refused => {}
        }
        ending
    }

    /// The roles that a run looks up.
    fn parents(&self, order: &WorkOrder) -> impl Iterator<Item = &Role> {
        let has_lookups = !self.releases.behaviour(&order.run.version).alone;
        self.design.after.get(&order.role).filter(|_| has_lookups).into_iter().flatten()
    }

    /// The nodes that a run needs.
    fn needs(&self, order: &WorkOrder) -> Vec<Need> {
        let parents = self.parents(order);
        let all = self.releases.behaviour(&order.run.version).demanding;
        let want = |parent: &Role| match all {
            false => 1,
            true => self.checker.fleet().designed().filter(|(_, _, record)| record.role == *parent).count(),
        };
        let need = |parent: &Role| Need::Role {
            role: parent.clone(),
            want: u32::try_from(want(parent)).unwrap_or(1),
            have: 0,
        };
        parents.map(need).collect()
    }

    fn lookups(&self, order: &WorkOrder) -> Lookups {
        let keys = self.parents(order).map(|parent| format!("active_roles::{parent}"));
        keys.map(|key| (key.clone(), order.snapshot.tag(&key))).collect()
    }

    fn account(
        &self,
        number: MachineNumber,
        order: &WorkOrder,
        applied: ApplierResult,
        lookups: Lookups,
    ) -> UnsentReport {
        let ended = self.timestamp(self.now);
        report_builder::configured(&self.machines[number].node, order, applied, lookups, String::new(), ended)
    }

    /// Stops all processes.
    pub(super) fn end_applier(&mut self, number: MachineNumber) {
        if let Some(going) = self.machines[number].applier.take() {
            if matches!(going.phase, Phase::Applying { .. }) {
                self.machines[number].lost = Some(going.order.run.run);
            }
            self.checker.applier_cut_off(number, self.now);
        }
    }

    pub(super) fn applier_ends(&mut self, number: MachineNumber, applier: u64) {
        let Some(going) = self.machines[number].applier.clone().filter(|going| going.number == applier) else { return };
        let Phase::Applying { ending } = going.phase else { return };
        let order = going.order;
        let version = order.run.version.clone();
        let has_drifted = order.run.is_timed() && self.drifts(number);
        if order.run.work == Work::Preview {
            self.preview_ends(number, going.agent, &order, ending, has_drifted);
            return;
        }
        let unchanged = self.machines[number].runs.as_ref() == Some(&version) && !has_drifted;
        match &ending {
            RunEnding::Well | RunEnding::Invalid => self.machines[number].runs = Some(version.clone()),
            // It may have changed something before it failed.
            RunEnding::Failed => self.machines[number].runs = None,
            RunEnding::Pending(_) | RunEnding::Refused => {}
        }
        let end = ApplierEnd { run: order.run.run.clone(), ending, unchanged };
        let result = self.result(number, &order, &end).result;
        self.checker.applier_ends(number, &order.run, result, self.now);
        self.machines[number].ended = Some(end.clone());
        if !self.machines[number].up || self.machines[number].life != going.agent {
            self.log_node(number, format_args!("an applier without an agent ends: {}", result.word()));
            self.machines[number].applier = None;
            return;
        }
        let input = self.report_applier(number, order, &end);
        self.input(number, input);
    }

    /// True if a timed run finds that the node has drifted.
    fn drifts(&mut self, number: MachineNumber) -> bool {
        let has_drifted = self.releases.timed.is_some_and(|timed| self.rng.chance(timed.drift));
        if has_drifted {
            self.count_fault(Fault::NodeDrifted);
            self.log_node(number, format_args!("has drifted"));
        }
        has_drifted
    }

    /// A preview has ended. It changed nothing, and is lost with its agent.
    fn preview_ends(
        &mut self,
        number: MachineNumber,
        agent: u64,
        order: &WorkOrder,
        ending: RunEnding,
        has_drifted: bool,
    ) {
        self.machines[number].applier = None;
        if !self.machines[number].up || self.machines[number].life != agent {
            return;
        }
        let end = ApplierEnd { run: order.run.run.clone(), ending, unchanged: !has_drifted };
        let applied = self.result(number, order, &end);
        self.checker.preview_ended(number, &order.run, applied.result, self.machines[number].agent_life());
        let report = self.account(number, order, applied, Lookups::new());
        self.input(number, Input::Previewed { report: Box::new(report_builder::previewed(report)) });
    }

    fn result(&self, number: MachineNumber, order: &WorkOrder, end: &ApplierEnd) -> ApplierResult {
        match &end.ending {
            RunEnding::Well | RunEnding::Invalid => {
                ApplierResult::succeeded(if end.unchanged { RunResult::Unchanged } else { RunResult::Changed })
            }
            RunEnding::Failed => {
                let error = self.releases.error(&order.run.version, &self.machines[number].name);
                let failed = ApplierResult::failed(RunReason::ResourcesFailed { count: 1 });
                ApplierResult { errors: vec![error], ..failed }
            }
            RunEnding::Pending(needs) => ApplierResult::pending(needs.clone()),
            RunEnding::Refused => ApplierResult::failed(RunReason::ReleaseRefused {
                refusal: ReleaseRefusal::Older {
                    serial: order.desired.serial,
                    highest: self.machines[number].disk.highest,
                },
            }),
        }
    }

    /// The agent reads the result of an applier. Returns the input for its queue.
    fn report_applier(&mut self, number: MachineNumber, order: Box<WorkOrder>, end: &ApplierEnd) -> Input {
        let applied = self.result(number, &order, end);
        let result = applied.result;
        let report = self.account(number, &order, applied, self.lookups(&order));
        match result {
            RunResult::Unchanged | RunResult::Changed => {
                let applied = Box::new(AppliedRelease {
                    desired: order.desired.clone(),
                    validate_every: jiff::SignedDuration::from_hours(6),
                    run_every: self.releases.timed.map(|timed| timed.every),
                    drift: self.releases.timed.map(|timed| timed.policy).unwrap_or_default(),
                    hooks: Vec::new(),
                });
                let report = Box::new(report);
                self.machines[number].appliers += 1;
                let (applier, agent) = (self.machines[number].appliers, self.machines[number].life);
                let phase = Phase::Done { report: report.clone() };
                self.machines[number].applier = Some(Applier { number: applier, agent, order, phase });
                Input::Configured { report, applied }
            }
            RunResult::Failed | RunResult::Pending => {
                self.log_node(number, format_args!("applied {}: {}", order.run.version, result.word()));
                self.machines[number].applier = None;
                report_builder::finished(&order, report)
            }
        }
    }

    /// A new agent continues the work of an earlier one. Returns the input for its queue, unless it has to wait.
    pub(super) fn adopt(&mut self, number: MachineNumber, order: Box<WorkOrder>) -> Option<Input> {
        let life = self.machines[number].life;
        let run = order.run.run.clone();
        if let Some(going) = self.machines[number].applier.as_mut().filter(|going| *going.run() == run) {
            if order.run.work == Work::Run && matches!(going.phase, Phase::Applying { .. }) {
                going.agent = life;
                going.order = order;
                self.log_node(number, format_args!("its agent adopts the applier"));
                return None;
            }
            // Checks, or work that is made again.
            self.end_applier(number);
        }
        if order.run.work != Work::Run {
            return Some(Input::NotContinued);
        }
        if let Some(end) = self.machines[number].ended.clone().filter(|end| end.run == run) {
            let phase = order.run.phase;
            let input = self.report_applier(number, order, &end);
            return match phase {
                RunPhase::Applying => Some(input),
                RunPhase::Validating => {
                    self.check(number);
                    None
                }
            };
        }
        if self.machines[number].lost.as_ref() == Some(&run) {
            self.log_node(number, format_args!("its run of {} was lost", order.run.version));
            let now = self.timestamp(self.now);
            let node = &self.machines[number].node;
            return Some(report_builder::lost(node, &order, Vec::new(), String::new(), now));
        }
        // The agent was killed before it started the applier.
        Some(Input::NotContinued)
    }

    /// The result of the applier is recorded: the checks start.
    pub(super) fn acknowledged(&mut self, number: MachineNumber) {
        if matches!(&self.machines[number].applier, Some(Applier { phase: Phase::Done { .. }, .. })) {
            self.check(number);
        }
    }

    fn check(&mut self, number: MachineNumber) {
        let broken = self.machines[number].broken;
        let Some(going) = self.machines[number].applier.take() else { return };
        let Phase::Done { report } = going.phase else { return };
        let invalid = self.releases.is_invalid_at(&going.order.run.version, &self.machines[number].name);
        let passes = !invalid && !broken;
        let what = MachineEvent::ChecksEnd { number: going.number };
        let takes = self.check_time(&going.order.run.version);
        self.queue.schedule(self.now + takes, Event::Machine { machine: number, what });
        self.checker.checks_start(number, self.now);
        self.machines[number].applier = Some(Applier { phase: Phase::Checking { report, passes }, ..going });
    }

    pub(super) fn checks_end(&mut self, number: MachineNumber, applier: u64) {
        let going = self.machines[number].applier.take_if(|going| going.number == applier);
        let Some(Applier { agent, order, phase: Phase::Checking { report, passes }, .. }) = going else {
            self.machines[number].applier = going.or_else(|| self.machines[number].applier.take());
            return;
        };
        let passes = passes && !self.machines[number].broken;
        let verdict = if passes { Verdict::Passed } else { Verdict::Failed };
        self.checker.checks_end(number, &order.run, passes, self.now);
        self.checker.run_ended(number, &order.run, verdict, self.machines[number].agent_life());
        let name = self.machines[number].name.clone();
        if !self.machines[number].up || self.machines[number].life != agent {
            return;
        }
        if passes {
            let highest = &mut self.machines[number].disk.highest;
            *highest = order.desired.serial.max(*highest);
            if order.desired.allow_older {
                *highest = order.desired.serial;
            }
        }
        let message = match verdict {
            Verdict::Passed => String::new(),
            Verdict::Failed => "connection refused".to_owned(),
        };
        let check = CheckResult { name: "serves".into(), verdict, message, millis: 200 };
        let ended = self.timestamp(self.now);
        let mut report = report_builder::validated(&order, *report, vec![check], String::new(), ended);
        let word = if passes { "validated" } else { "its checks fail" };
        self.log_event(format_args!("{name}: {word} at {}", order.run.version));
        let input = match order.run.work {
            Work::Validation => {
                report.first_failure = report_builder::first_failure(&order.run, &report);
                Input::Validated { report: Some(Box::new(report)) }
            }
            Work::Run => {
                // The second report of a run has the next sequence number.
                report.seq = order.run.seq + 1;
                report_builder::finished(&order, report)
            }
            Work::Preview => unreachable!("a preview has no checks"),
            Work::Hooks => Input::HooksFinished { report: Box::new(report), results: Vec::new() },
        };
        self.input(number, input);
    }
}
