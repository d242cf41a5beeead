//! Fleets without faults, of any size: times a rollout with equal run times, and compares it with the duration of its plan;
//! and counts the writes of a fleet at rest.
//!
//! The difference is the overhead of servers, store, network and agents. A grant is written, returns over the watch and
//! is sent to its agent. The agent debounces its causes, and its two reports are sent, grouped and written.

use std::time::Duration;

use jiff::SignedDuration;
use muster_core::release::timed_runs::DriftPolicy;
use muster_core::rollout::plan::RolloutPlan;
use muster_core::rollout::record::RolloutPhase;
use muster_core::rollout::strategy::Strategy;
use muster_rollout::predict;
use thiserror::Error;

use super::checker::Violation;
use super::event::SimTime;
use super::fleet::{Design, ReleaseBehaviour, TimedRunBehaviour, version};
use super::operator::OperatorActionKind;
use super::world::{START, World};

/// The duration of the checks after a run.
const CHECKS: Duration = Duration::from_secs(1);
/// The time limit for the first version, which moves all nodes at once.
const FIRST: Duration = Duration::from_secs(600);
/// A rollout that takes this many times its minimum never ends.
const ENDLESS: i32 = 3;

/// A completed rollout with its duration.
#[derive(Clone, Debug)]
pub struct TimedRollout {
    pub plan: RolloutPlan,
    /// From the operator's request to the transaction that completes the rollout.
    pub length: Duration,
    /// The duration that the plan needs: waves, budgets and soaks without any overhead.
    pub minimum: Duration,
    pub world: World,
}

impl TimedRollout {
    pub fn ratio(&self) -> f64 {
        self.length.as_secs_f64() / self.minimum.as_secs_f64()
    }
}

/// A rollout that could not be timed.
#[derive(Clone, Debug, Error)]
pub enum UndisturbedError {
    #[error("the fleet has not validated its first version within {} s", FIRST.as_secs())]
    NotReady,
    #[error("no rollout starts: {answer}")]
    Refused { answer: String },
    #[error("a rule is violated: {0}")]
    Broken(Violation),
    #[error("the rollout is {phase} and not completed after {after:?}")]
    Stopped { phase: &'static str, after: Duration },
}

/// Deploys the first version, and then times a rollout. Every run takes `applies`, and its checks one second.
pub fn roll_out(design: Design, strategy: Strategy, applies: Duration) -> Result<TimedRollout, UndisturbedError> {
    let mut world = World::new(design, 3, START);
    // The first version moves all nodes at once. With lookups, each validated node would wake all other ones.
    world.releases.set(version(1), ReleaseBehaviour { alone: true, ..ReleaseBehaviour::default() });
    let same = |time: Duration| (millis(time), millis(time));
    world.releases.set(
        version(2),
        ReleaseBehaviour { takes: same(applies), checks: same(CHECKS), ..ReleaseBehaviour::default() },
    );
    world.deploy_first_version();
    while phase(&world) != Some(&RolloutPhase::Completed) {
        world.check_rules()?;
        if world.now > FIRST {
            return Err(UndisturbedError::NotReady);
        }
        let until = world.now + Duration::from_secs(1);
        world.run_until(until);
    }

    let (asked, strategy) = (world.now, Box::new(strategy));
    world.submit(OperatorActionKind::Start { to: version(2), strategy, at_once: false, supersede: false });
    // The request and its effect take a moment.
    world.run_until(asked + Duration::from_secs(1));
    let begun = world.checker.fleet().active_rollout_record().filter(|(record, _)| record.to == version(2));
    let plan = begun.and_then(|(record, _)| world.blobs.plans.get(&record.plan)).map(|plan| plan.plan().clone());
    let Some(plan) = plan else {
        return Err(UndisturbedError::Refused { answer: world.log().last(1).concat() });
    };
    let node_time = SignedDuration::try_from(applies + CHECKS).unwrap_or(SignedDuration::MAX);
    let minimum = predict::minimum_duration(&plan, node_time);
    let endless = Duration::try_from(minimum.saturating_mul(ENDLESS)).unwrap_or_default();
    while phase(&world) == Some(&RolloutPhase::Running) && world.now < asked + endless {
        world.check_rules()?;
        world.step(SimTime::MAX);
    }
    world.check_rules()?;
    let length = world.now - asked;
    match phase(&world) {
        Some(RolloutPhase::Completed) => {
            let minimum = Duration::try_from(minimum).unwrap_or_default();
            Ok(TimedRollout { plan, length, minimum, world })
        }
        other => Err(UndisturbedError::Stopped { phase: other.map_or("gone", RolloutPhase::word), after: length }),
    }
}

/// The number of timed runs in a fleet at rest for this time, and of the transactions meanwhile.
pub fn rest(design: Design, every: Duration, length: Duration) -> Result<(u64, u64), UndisturbedError> {
    let mut world = World::new(design, 3, START);
    let every = SignedDuration::try_from(every).unwrap_or(SignedDuration::MAX);
    world.releases.timed = Some(TimedRunBehaviour { every, policy: DriftPolicy::Repair, drift: 0.0 });
    world.deploy_first_version();
    // Nodes that looked others up run again, until all are active.
    let until = world.now + FIRST;
    world.run_until(until);
    let (revision, runs) = (world.depot.history.head(), world.timed_runs);
    let until = world.now + length;
    world.run_until(until);
    world.check_rules()?;
    Ok((world.timed_runs - runs, world.depot.history.head().0 - revision.0))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn phase(world: &World) -> Option<&RolloutPhase> {
    world.checker.fleet().active_rollout_record().map(|(record, _)| &record.phase)
}

impl World {
    fn check_rules(&self) -> Result<(), UndisturbedError> {
        self.violation().map_or(Ok(()), |violation| Err(UndisturbedError::Broken(violation.clone())))
    }
}
