//! Runs the simulation of one seed: fleet, strategy, releases, faults and operators are drawn from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_core::names::NodeName;
use muster_core::node::record::Decommission;
use muster_core::release::timed_runs::DriftPolicy;
use muster_core::replica::ControllerName;
use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{
    Amount, Deadlines, FailureLimits, Gate, GateCheck, GateCheckKind, MaxUnavailable, OnFailure, OnInconclusive,
    PerLabel, Promote, Reach, Strategy, Wave, Window,
};
use muster_core::txn::{Op, Txn};
use muster_rollout::command::{RetryTarget, RolloutCommand};

use super::checker::{Rule, Violation};
use super::coverage::ReachedArms;
use super::event::{Event, SimTime};
use super::faults::{FaultCounts, FaultRates, most_skew};
use super::fleet::{Design, ReleaseBehaviour, TimedRunBehaviour, node_record, role, version};
use super::machine::Machine;
use super::operator::{OperatorAction, OperatorActionKind};
use super::operator_schedule::OperatorRates;
use super::store::Writer;
use super::world::{GateBehaviour, START, World};
use crate::rng::Rng;

/// The time limit after the last fault.
const TIMEOUT: Duration = Duration::from_secs(3_600);
/// Idle time at the end, in which pending messages arrive.
const QUIET: Duration = Duration::from_secs(90);

/// The result of one seed.
#[derive(Clone, Debug)]
pub struct SeedRun {
    pub seed: u64,
    pub violation: Option<Violation>,
    /// Hash of the event log.
    pub hash: u64,
    pub faults: FaultCounts,
    /// The engine's decisions that occurred.
    pub arms: ReachedArms,
    /// The virtual duration.
    pub length: Duration,
    pub ended: &'static str,
    pub world: World,
}

impl SeedRun {
    /// A failure report: seed, time, last log lines, and how to repeat the run.
    pub fn report(&self, violation: &Violation) -> String {
        let mut lines =
            vec![format!("seed {} violates a rule at {:.3} s: {violation}", self.seed, self.world.now().as_secs_f64())];
        lines.extend(self.world.log().last(30).iter().cloned());
        lines.push(format!("repeat it, with the full log: muster-sim --seed {}", self.seed));
        lines.push(format!(
            "once it is corrected, add seed {} and one sentence about its cause to REGRESSION_SEEDS in \
             crates/sim/src/simulation/seed_set.rs, so that every `make test` runs it",
            self.seed
        ));
        lines.join("\n")
    }
}

/// The fleets of the seeds: 20 or more nodes in three roles, and two or three failure domains.
fn designs() -> [Design; 2] {
    let (db, app, web) = (role("db"), role("app"), role("web"));
    let chain =
        BTreeMap::from([(app.clone(), BTreeSet::from([db.clone()])), (web.clone(), BTreeSet::from([app.clone()]))]);
    let fork =
        BTreeMap::from([(app.clone(), BTreeSet::from([db.clone()])), (web.clone(), BTreeSet::from([db.clone()]))]);
    [
        Design { roles: vec![(db.clone(), 4), (app.clone(), 7), (web.clone(), 9)], after: chain, domains: 2 },
        Design { roles: vec![(db, 3), (app, 8), (web, 11)], after: fork, domains: 3 },
    ]
}

/// A converged fleet that runs its first version. Built once, and cloned for each seed.
fn converged_world(number: usize) -> World {
    static CONVERGED: OnceLock<Vec<World>> = OnceLock::new();
    let worlds = CONVERGED.get_or_init(|| designs().into_iter().map(first_version).collect());
    worlds[number % worlds.len()].clone()
}

/// Deploys the first version to a new fleet, without faults.
pub fn first_version(design: Design) -> World {
    let mut world = World::new(design, 3, START);
    world.deploy_first_version();
    world
}

impl World {
    /// Deploys the first version.
    pub(crate) fn deploy_first_version(&mut self) {
        self.run_until(Duration::from_secs(20));
        let (to, strategy) = (version(1), Box::default());
        self.submit(OperatorActionKind::Start { to, strategy, at_once: true, supersede: false });
        self.run_until(Duration::from_secs(90));
    }

    /// Submits an action of an operator now.
    pub fn submit(&mut self, kind: OperatorActionKind) {
        self.submit_as("ann", kind);
    }

    /// Submits an action of a named operator now.
    pub fn submit_as(&mut self, by: &str, kind: OperatorActionKind) {
        self.operators.requests += 1;
        let action = OperatorAction { number: self.operators.requests, by: by.to_owned(), kind };
        self.send_action(action);
    }

    pub(super) fn submit_later(&mut self, at: SimTime, kind: OperatorActionKind) {
        self.operators.requests += 1;
        let action = OperatorAction { number: self.operators.requests, by: "ann".into(), kind };
        if self.operators.repeat > 0.0 && self.rng.chance(self.operators.repeat) {
            let again = at + self.random_between(500, 10_000);
            self.queue.schedule(again, Event::Operator(action.clone()));
        }
        self.queue.schedule(at, Event::Operator(action));
    }

    /// Starts the run of a seed in a converged world.
    pub fn start_seed(&mut self, seed: u64) {
        self.rng = Rng::new(seed);
        self.faults.most_skew = most_skew(seed);
        self.checker.arms = ReachedArms::default();
        self.checker.clocks_differ_by(2 * self.faults.most_skew.unsigned_abs());
        self.releases.seed = self.rng.next_u64();
        self.log_event(format_args!("seed {seed}"));
    }

    /// Enables all faults with these rates for a while.
    pub fn enable_faults(&mut self, rates: FaultRates, length: Duration) {
        self.faults.rates = rates;
        self.faults.calm_from = self.now + length;
        self.schedule_fault();
    }
}

/// The takeover times after the holder of the rollout controller is killed, without other faults.
pub fn takeover(seed: u64) -> Vec<Duration> {
    let mut world = converged_world(seed as usize);
    world.start_seed(seed);
    world.submit(OperatorActionKind::Start {
        to: version(2),
        strategy: Box::default(),
        at_once: false,
        supersede: false,
    });
    let wait = world.random_between(1_000, 30_000);
    let at = world.now + wait;
    world.run_until(at);
    let holder =
        world.checker.fleet().controllers().get(&ControllerName::Rollout).map(|(record, _)| record.replica.clone());
    let replica = world.replicas.iter().position(|server| Some(&server.id) == holder.as_ref());
    if let Some(replica) = replica {
        world.crash_replica(replica, Duration::from_secs(60));
    }
    let until = world.now + Duration::from_secs(50);
    world.run_until(until);
    world.takeovers().to_vec()
}

/// Runs a seed with all faults enabled.
pub fn run_seed(seed: u64) -> SeedRun {
    let mut world = converged_world(seed as usize);
    world.start_seed(seed);
    let operators = OperatorRates::of_seed(seed);
    let mut strategy = random_strategy(&mut world.rng);
    operators.adapt(&mut strategy, &mut world.rng);
    for number in 2..=4 {
        let nature = random_release(&mut world.rng);
        world.releases.set(version(number), nature);
    }
    if has_timed_runs(seed) {
        world.releases.timed = Some(random_timed_runs(&mut world.rng));
    }
    world.gate = GateBehaviour { fails: world.rng.below(4) * 10, inconclusive: world.rng.below(4) * 10, words: None };
    let length = world.random_between(60_000, 200_000);
    let mut rates = FaultRates::harsh();
    rates.strike_every = 2_500 + world.rng.below(6_000);
    world.enable_faults(rates, length);
    let (begin, calm) = (world.now, world.faults.calm_from);
    world.submit(OperatorActionKind::Start {
        to: version(2),
        strategy: Box::new(strategy.clone()),
        at_once: false,
        supersede: false,
    });
    operators.schedule(&mut world, &strategy, begin, calm);
    let end = calm + TIMEOUT;
    while world.now < calm && world.violation().is_none() {
        let until = (world.now + Duration::from_secs(5)).min(calm);
        world.run_until(until);
        world.check_reasons();
    }
    let ended = settle(&mut world, &operators, end);
    world.check_end();
    world.log_violations();
    let violation = world.violation().cloned();
    let (hash, faults, arms, length) = (world.log.hash(), world.faults.counts, world.checker.arms, world.now - begin);
    SeedRun { seed, violation, hash, faults, arms, length, ended, world }
}

/// True for the seeds whose fleets make timed runs: one in five, with few and with many actions of operators. Other seeds,
/// such as those of the mutants, stay as they are.
fn has_timed_runs(seed: u64) -> bool {
    let place = seed % 1_000;
    (100..200).contains(&place) || (530..630).contains(&place)
}

/// Timed runs, a few for each node in the time of a seed.
fn random_timed_runs(rng: &mut Rng) -> TimedRunBehaviour {
    let every = SignedDuration::from_secs(20 + i64::try_from(rng.below(40)).unwrap_or(0));
    let policy = if rng.chance(0.3) { DriftPolicy::Report } else { DriftPolicy::Repair };
    TimedRunBehaviour { every, policy, drift: 0.2 }
}

/// Runs until the rollout has ended. An operator intervenes a few times.
fn settle(world: &mut World, operators: &OperatorRates, end: SimTime) -> &'static str {
    let mut help = operators.final_help.draw(&mut world.rng);
    loop {
        if world.violation().is_some() {
            return "violated";
        }
        let phase = world.checker.fleet().active_rollout_record().map(|(record, _)| record.phase.clone());
        let word = phase.as_ref().map_or("nothing", RolloutPhase::word);
        match phase {
            Some(RolloutPhase::Running) => {
                if world.now >= end {
                    let what = format!("{} s after the last fault it is still in progress", TIMEOUT.as_secs());
                    world.checker.report(Rule::Ends, what);
                    return "violated";
                }
                if world.waits_for_promotion() {
                    world.submit(OperatorActionKind::Operate(RolloutCommand::Promote { full: true }));
                }
                let until = (world.now + Duration::from_secs(10)).min(end);
                world.run_until(until);
                world.check_reasons();
            }
            Some(RolloutPhase::Paused { why }) if help > 0 => {
                help -= 1;
                let retry = matches!(why, PauseReason::Failures { .. }) && world.rng.chance(0.5);
                let command =
                    if retry { RolloutCommand::Retry(RetryTarget::AllFailed) } else { RolloutCommand::Resume };
                world.submit(OperatorActionKind::Operate(command));
                let until = world.now + Duration::from_secs(10);
                world.run_until(until);
            }
            Some(_) | None => {
                let until = world.now + QUIET;
                world.run_until(until);
                let phase = world.checker.fleet().active_rollout_record().map(|(record, _)| record.phase.word());
                if phase.unwrap_or("nothing") == word {
                    return word;
                }
            }
        }
    }
}

impl World {
    /// Adds a node of a random role to the design, with its machine.
    pub(crate) fn add_random_node(&mut self) {
        let place = self.rng.below(self.design.roles.len() as u64) as usize;
        self.add_node(place);
    }

    /// Adds a node of this role.
    pub(crate) fn add_node(&mut self, place: usize) {
        let (role, count) = &mut self.design.roles[place];
        *count += 1;
        let (role, number) = (role.clone(), *count);
        let Ok(name) = NodeName::build(&role, number, None) else { return };
        let record = node_record(&self.design, &role, number);
        let domain = record.failure_domain.clone();
        let Ok(op) = Op::put_json(self.keys.node(&name), &record) else { return };
        self.log_event(format_args!("design: {name} joins"));
        let _ = self.commit_txn(&Txn::new().op(op), Writer::Setup);
        let provisioned = Op::put(self.keys.provisioned(true, &name), "{}");
        let _ = self.commit_txn(&Txn::new().op(provisioned), Writer::Setup);
        self.add_machine(Machine::new(&self.env, name, domain));
    }

    /// Starts the decommission of a node, which stays connected for a while.
    pub(crate) fn decommission(&mut self, name: &NodeName) {
        let known = self.checker.fleet().get(name).and_then(|node| node.record.clone());
        let Some(mut record) = known.filter(|record| !record.is_leaving()) else { return };
        let since: Timestamp = self.timestamp(self.now);
        let until = since.saturating_add(SignedDuration::from_secs(30)).unwrap_or(since);
        record.leaving = Some(Decommission { since, until });
        let Ok(op) = Op::put_json(self.keys.node(name), &record) else { return };
        self.log_event(format_args!("design: {name} leaves"));
        let _ = self.commit_txn(&Txn::new().op(op), Writer::Setup);
        self.queue.schedule(self.now + Duration::from_secs(30), Event::RemoveNode { node: name.clone() });
    }

    /// Removes a node: its machine is released, and its keys are deleted.
    pub(crate) fn remove_node(&mut self, name: &NodeName) {
        self.log_event(format_args!("design: {name} is removed"));
        let is_its = |key: &&String| key.split('/').any(|segment| segment == name.as_str());
        let keys: Vec<String> = self.depot.history.now().keys().filter(is_its).cloned().collect();
        let txn = keys.into_iter().fold(Txn::new(), |txn, key| txn.op(Op::delete(key)));
        let _ = self.commit_txn(&txn, Writer::Setup);
        if let Some(machine) = self.machines.iter().position(|machine| machine.name == *name) {
            // It does not return within any run.
            self.crash_agent(machine, Duration::from_secs(1_000_000));
        }
    }

    fn waits_for_promotion(&self) -> bool {
        let Some((record, _)) = self.checker.fleet().active_rollout_record() else { return false };
        let Some(wave) = record.waves.last() else { return false };
        wave.settled.is_some() && wave.gate.is_some() && wave.passed.is_none() && wave.promoted.is_none()
    }
}

fn random_release(rng: &mut Rng) -> ReleaseBehaviour {
    let takes = [(500, 2_000), (1_000, 6_000), (2_000, 12_000)][rng.below(3) as usize];
    match rng.below(10) {
        0 => ReleaseBehaviour { fails_on: 100, takes, ..ReleaseBehaviour::default() },
        1 => ReleaseBehaviour { invalid_on: 100, takes, ..ReleaseBehaviour::default() },
        2 => ReleaseBehaviour { fails_on: 10, takes, ..ReleaseBehaviour::default() },
        3 => ReleaseBehaviour { invalid_on: 10, takes, ..ReleaseBehaviour::default() },
        4 | 5 => ReleaseBehaviour { flaky: 10, takes, ..ReleaseBehaviour::default() },
        6 => ReleaseBehaviour { flaky: 30, fails_on: 5, takes, ..ReleaseBehaviour::default() },
        7 => ReleaseBehaviour { demanding: true, takes, ..ReleaseBehaviour::default() },
        _ => ReleaseBehaviour { takes, ..ReleaseBehaviour::default() },
    }
}

/// A random strategy, in seconds where one of production is in minutes.
fn random_strategy(rng: &mut Rng) -> Strategy {
    let seconds = |span: u64| SignedDuration::from_secs(i64::try_from(span).unwrap_or(1));
    let soak = seconds(8 + rng.below(10));
    // Derived from the soak: a draw of its own would change every known seed.
    let inconclusive = if soak.as_secs() % 2 == 0 { OnInconclusive::Pause } else { OnInconclusive::Fail };
    let wave = |reach, promote| Wave { reach, soak: Some(soak), promote };
    let (auto, manual) = (Promote::Auto, Promote::Manual);
    let all = Reach::Percent(100);
    let waves = match rng.below(5) {
        0 => vec![wave(all, auto)],
        1 => vec![wave(Reach::Nodes(1), auto), wave(all, auto)],
        2 => vec![wave(Reach::Nodes(1), manual), wave(Reach::Percent(50), auto), wave(all, auto)],
        3 => vec![wave(Reach::Percent(30), auto), wave(all, auto)],
        _ => vec![wave(Reach::Nodes(2), auto), wave(Reach::Percent(40), manual), wave(all, auto)],
    };
    let default = match rng.below(4) {
        0 => Amount::Nodes(1),
        1 => Amount::Nodes(2),
        2 => Amount::Percent(25),
        _ => Amount::Percent(50),
    };
    let per = rng.chance(0.5).then(|| PerLabel {
        label: if rng.chance(0.5) { "failure_domain".into() } else { "rack".into() },
        count: 1 + u32::try_from(rng.below(3)).unwrap_or(0),
    });
    let checks = if rng.chance(0.4) {
        vec![GateCheck {
            name: "front door".into(),
            kind: GateCheckKind::Command(vec!["true".into()]),
            timeout: GateCheck::TIMEOUT,
            retries: 0,
            every: GateCheck::EVERY,
        }]
    } else {
        Vec::new()
    };
    let total = Amount::Percent(5 + u8::try_from(rng.below(20)).unwrap_or(0));
    let failures = FailureLimits {
        canary: Amount::Nodes(0),
        wave: Amount::Nodes(u32::try_from(rng.below(3)).unwrap_or(0)),
        total,
    };
    let time = |hour: i8, minute: i8| jiff::civil::time(hour, minute, 0, 0);
    let days = vec![1, 2, 3, 4, 5, 6, 7];
    let windows = if rng.chance(0.2) {
        let closes = 3 + i8::try_from(rng.below(2)).unwrap_or(0);
        let window = |from, to| Window { days: days.clone(), from, to, tz: "UTC".into() };
        vec![window(time(9, 0), time(9, closes)), window(time(9, closes + 1), time(8, 0))]
    } else {
        Vec::new()
    };
    Strategy {
        waves,
        max_unavailable: MaxUnavailable { default, roles: BTreeMap::new(), per },
        ramp: rng.chance(0.5),
        soak: seconds(6 + rng.below(6)),
        gate: Gate { checks, inconclusive, ..Gate::default() },
        failures,
        on_failure: if rng.chance(0.5) { OnFailure::Pause } else { OnFailure::Rollback },
        deadlines: Deadlines {
            node: seconds(60 + rng.below(60)),
            pending: seconds(60 + rng.below(60)),
            progress: seconds(200),
        },
        windows,
        confirm_within: rng.chance(0.2).then(|| seconds(15 + rng.below(20))),
    }
}
