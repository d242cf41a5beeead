//! Rollouts in virtual time: the engine alone (planning, deciding, a complete rollout), and a simulated fleet (the delay of
//! servers, store, network and agents over the plan).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use muster_core::names::{NodeName, Role};
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::{RolloutPhase, RolloutRecord};
use muster_core::rollout::strategy::{Amount, MaxUnavailable, PerLabel, Strategy};
use muster_core::txn::Revision;
use muster_rollout::plan::{Request, plan};
use muster_rollout::predict;
use muster_rollout::start::{StartOptions, start};
use muster_rollout::step::{IndexedPlan, KeptSurvey, Step, step};
use muster_rollout::testing::{FakeFleet, RunEnd, after, request};
use muster_sim::simulation::fleet::Design;
use muster_sim::simulation::undisturbed::{TimedRollout, roll_out};

use crate::bench::Bench;
use crate::parts::process;
use crate::row::{BenchRow, Sample, Unit};

pub(crate) const ENGINE_METHOD: &str = "in this process, on an environment in memory that is built from its keys: 5,000 nodes in three roles, one after \
    the other, in 50 failure domains, all validated and connected. The strategy is the default one (one node, 10 %, \
    50 %, all, with their soaks) with a budget of 10 % of each role and 20 nodes of each domain. Planning is from \
    the environment to the plan with its order and predicted time. An idle step: the rollout is half done, with \
    nodes in progress. Length: each node answers 60 s after its grant; the clock jumps to the next answer or the \
    engine's next check, and writes are applied at once. The theoretical minimum is that of the plan: the same \
    budgets, ramp and soaks without any delay.";

/// Number of failure domains.
const DOMAINS: u32 = 50;
/// Time of a node from its grant to its report.
const NODE_TIME: SignedDuration = SignedDuration::from_secs(60);

pub(crate) fn measure_engine(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let nodes = bench.size(5_000, 500);
    let repeat = bench.size(50, 5);
    let world = world(nodes);
    let request = wanted(nodes);
    let mut planned = None;
    let mut planning = Vec::new();
    for _ in 0..repeat {
        let begin = Instant::now();
        let made = world.with_input(|input| plan(input, &request))?;
        planning.push(begin.elapsed());
        planned = Some(made);
    }
    let planned = planned.context("it was planned a moment ago")?;

    let mut rollout = Rollout::start(world, planned.clone())?;
    rollout.run_to_half(planned.node_count())?;
    let idle = rollout.idle(bench.size(2_000, 50))?;
    let in_flight = rollout.in_flight();
    rollout.run(|record, _| record.phase == RolloutPhase::Running)?;
    let record = rollout.record()?.0;
    anyhow::ensure!(record.phase == RolloutPhase::Completed, "the rollout has not completed: it is {:?}", record.phase);

    let took = rollout.world.now.duration_since(rollout.started);
    let least = predict::minimum_duration(&planned, NODE_TIME);
    let (planning, steps) = (Sample::new(planning), Sample::new(rollout.steps));
    Ok(vec![
        BenchRow::new(format!("rollout of {nodes} nodes: planned"), Unit::Seconds, planning.median())
            .under(0.050)
            .detail(planning.spread()),
        BenchRow::new(format!("rollout of {nodes} nodes: a step with nothing to do"), Unit::Seconds, idle.median())
            .under(0.001)
            .detail(format!("{}; {in_flight} nodes under way", idle.spread())),
        BenchRow::new(format!("rollout of {nodes} nodes: all its steps"), Unit::Seconds, steps.median())
            .detail(steps.spread()),
        BenchRow::new(
            format!("rollout of {nodes} nodes: length to its theoretical minimum"),
            Unit::Ratio,
            took.as_secs_f64() / least.as_secs_f64(),
        )
        .at_most(1.03)
        .detail(format!("{took:#} to {least:#} in virtual time, in {} waves", planned.waves.len())),
    ])
}

/// A step with nothing to do, in the same rollout of any number of nodes: its processor time, and the times.
pub(super) fn measure_idle_step(nodes: u32, repeat: u32) -> anyhow::Result<(Duration, Sample)> {
    let world = world(nodes);
    let planned = world.with_input(|input| plan(input, &wanted(nodes)))?;
    let count = planned.node_count();
    let mut rollout = Rollout::start(world, planned)?;
    rollout.run_to_half(count)?;
    let before = process::own_thread_cpu()?;
    let times = rollout.idle(repeat)?;
    Ok((process::own_thread_cpu()?.saturating_sub(before) / repeat, times))
}

/// Nodes in three roles; one tenth are databases.
fn roles(nodes: u32) -> [(&'static str, u32); 3] {
    let (db, app) = (nodes / 10, nodes * 4 / 10);
    [("db", db), ("app", app), ("web", nodes - db - app)]
}

fn world(nodes: u32) -> FakeFleet {
    let domains: Vec<String> = (1..=DOMAINS).map(|number| format!("rack{number}")).collect();
    let domains = domains.join(" ");
    FakeFleet::with_roles(&roles(nodes).map(|(role, count)| (role, count, domains.as_str())))
}

fn strategy(nodes: u32) -> Strategy {
    let per = PerLabel { label: "failure_domain".to_owned(), count: nodes.div_ceil(250) };
    Strategy {
        max_unavailable: MaxUnavailable { default: Amount::Percent(10), per: Some(per), ..MaxUnavailable::default() },
        ..Strategy::default()
    }
}

fn wanted(nodes: u32) -> Request {
    Request { after: after(&[("app", "db"), ("web", "app")]), ..request("v2", strategy(nodes)) }
}

/// A rollout in virtual time with nodes that always take equally long.
struct Rollout {
    world: FakeFleet,
    plan: IndexedPlan,
    survey: KeptSurvey,
    started: Timestamp,
    /// Nodes in progress, by the time of their report.
    in_progress: BTreeMap<Timestamp, Vec<NodeName>>,
    /// Real time of each decision.
    steps: Vec<Duration>,
}

impl Rollout {
    fn start(mut world: FakeFleet, plan: RolloutPlan) -> anyhow::Result<Self> {
        let starting = StartOptions { request: "bench".to_owned(), by: "the benchmark".to_owned(), supersede: false };
        let txn = world.with_input(|input| start(input, &plan, "digest", starting))?.txn.context("it is a new one")?;
        world.commit(&txn).map_err(|guard| anyhow::anyhow!("the rollout cannot start: {guard:?}"))?;
        let started = world.now;
        let (plan, survey) = (IndexedPlan::new(plan), KeptSurvey::default());
        Ok(Self { world, plan, survey, started, in_progress: BTreeMap::new(), steps: Vec::new() })
    }

    fn record(&self) -> anyhow::Result<(RolloutRecord, Revision)> {
        let deciding = self.world.fleet.active_rollout_record().context("no rollout decides")?;
        Ok((deciding.0.clone(), deciding.1))
    }

    fn step(&mut self) -> anyhow::Result<(Step, Revision)> {
        let (record, at) = self.record()?;
        let begin = Instant::now();
        let Self { world, plan, survey, .. } = self;
        let step = world.with_input(|input| step(survey, plan, &record, input));
        self.steps.push(begin.elapsed());
        Ok((step, at))
    }

    fn in_flight(&self) -> usize {
        self.in_progress.values().map(Vec::len).sum()
    }

    /// Runs while a condition on the record and the number of nodes in progress holds.
    fn run(&mut self, condition: impl Fn(&RolloutRecord, usize) -> bool) -> anyhow::Result<()> {
        loop {
            let recheck = self.apply_writes()?;
            if !condition(&self.record()?.0, self.in_flight()) {
                return Ok(());
            }
            let answer = self.in_progress.keys().next().copied();
            let next = [answer, recheck].into_iter().flatten().min();
            let next = next.context("no node is in progress, and the engine waits for nothing")?;
            self.world.now = self.world.now.max(next);
            while let Some(due) = self.in_progress.first_entry().filter(|due| *due.key() <= self.world.now) {
                for node in due.remove() {
                    self.world.answers(node.as_str(), RunEnd::Validated);
                }
            }
        }
    }

    /// Runs until half of the nodes are updated and others are in progress.
    fn run_to_half(&mut self, nodes: usize) -> anyhow::Result<()> {
        let half = u32::try_from(nodes / 2)?;
        self.run(|record, in_flight| record.steps.healthy < half || in_flight < nodes / 100)
    }

    /// Applies the engine's writes. Returns the time of its next check.
    fn apply_writes(&mut self) -> anyhow::Result<Option<Timestamp>> {
        loop {
            let (step, at) = self.step()?;
            anyhow::ensure!(
                step.checks.is_none() && step.roll_back.is_none(),
                "the rollout does not continue: {step:?}"
            );
            let Some(change) = step.change else { return Ok(step.recheck) };
            if !change.grants.is_empty() {
                let answers = self.in_progress.entry(self.world.now.saturating_add(NODE_TIME)?).or_default();
                answers.extend(change.grants.iter().map(|grant| grant.node.clone()));
            }
            let txn = change.txn(&self.world.fleet, at)?;
            self.world.commit(&txn).map_err(|guard| anyhow::anyhow!("a step is refused: {guard:?}"))?;
        }
    }

    /// Time of a step without anything to do.
    fn idle(&mut self, repeat: u32) -> anyhow::Result<Sample> {
        let made = self.steps.len();
        for _ in 0..repeat {
            let (step, _) = self.step()?;
            anyhow::ensure!(step.change.is_none(), "there is something to do: {step:?}");
        }
        Ok(Sample::new(self.steps.drain(made..)))
    }
}

pub(crate) const FLEET_METHOD: &str = "in this process, in virtual time: the simulator's three servers, one store, and an agent on each of 5,000 \
    machines, with the product's decision code. A message and a request take up to 10 ms each way, as does a watch; \
    reports wait for their groups; an agent merges causes for 200 ms. There are no faults. The fleet, its order and \
    the strategy are those of `rollout-engine`. Each run takes 59 s and its checks one more. Length: from the \
    operator's command to the transaction that completes the rollout. The theoretical minimum is that of the plan: \
    the same budgets, ramp and soaks without any delay.";

/// The checks after a run take a second.
const CHECKS: Duration = Duration::from_secs(1);

pub(crate) fn measure_fleet(bench: &Bench) -> anyhow::Result<Vec<BenchRow>> {
    let nodes = bench.size(5_000, 500);
    let applies = Duration::try_from(NODE_TIME)?.saturating_sub(CHECKS);
    let begin = Instant::now();
    let timed = roll_out(design(nodes)?, strategy(nodes), applies)?;
    let took = begin.elapsed();
    let TimedRollout { plan, length, minimum, world } = &timed;
    let seconds = |time: &Duration| time.as_secs_f64();
    let name = |what: &str| format!("rollout of {nodes} simulated nodes: {what}");
    Ok(vec![
        BenchRow::new(name("length to its theoretical minimum"), Unit::Ratio, timed.ratio()).at_most(1.03).detail(
            format!(
                "{:.1} s to {:.1} s in virtual time, in {} waves",
                seconds(length),
                seconds(minimum),
                plan.waves.len()
            ),
        ),
        BenchRow::new(name("virtual to real time"), Unit::Ratio, seconds(&world.now()) / seconds(&took))
            .detail(format!("the first version included; {:.1} s of real time", seconds(&took))),
    ])
}

fn design(nodes: u32) -> anyhow::Result<Design> {
    let mut counted = Vec::new();
    for (role, count) in roles(nodes) {
        counted.push((Role::new(role)?, count));
    }
    let (db, app, web) = (Role::new("db")?, Role::new("app")?, Role::new("web")?);
    let after = BTreeMap::from([(app.clone(), BTreeSet::from([db])), (web, BTreeSet::from([app]))]);
    Ok(Design { roles: counted, after, domains: DOMAINS })
}
