//! Muster on a real etcd cluster under faults: three members, two replicas, twenty agents, and a checker.
//!
//! - [`fleet`] starts everything. [`proxy`] is between agents and replicas,
//!   and can cut streams.
//! - [`load`] changes the version all the time, so that reports are in flight during faults.
//! - [`fault`] injects faults. [`plan`] makes a random plan from a seed, and [`soak`] executes it.
//! - [`checker`] verifies invariants from outside. It reads the history of etcd through its own client and never from
//!   Muster; only [`views`] sends requests to the replicas, to compare their responses with the store.
//!
//! Every test has the same shape: [`fleet::ClusterFleet::start`], faults, and [`fleet::ClusterFleet::check`] after each.
#![expect(clippy::print_stdout, reason = "progress of a test, shown by the runner when it fails")]

pub mod checker;
pub mod fault;
pub mod fleet;
pub mod load;
pub mod plan;
pub mod proxy;
pub mod rollouts;
pub mod settle;
pub mod views;

use std::time::Duration;

use crate::cluster::fault::pause_for;
use crate::cluster::fleet::ClusterFleet;
use crate::cluster::plan::{FaultStep, Pace, plan};

/// Seed of the plan; random by default.
pub const SEED: &str = "MUSTER_SOAK_SEED";
/// Duration in minutes; one by default.
pub const MINUTES: &str = "MUSTER_SOAK_MINUTES";

/// Seed and duration from the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoakOptions {
    pub seed: u64,
    pub minutes: u64,
}

impl SoakOptions {
    pub fn time(self) -> Duration {
        Duration::from_secs(60 * self.minutes)
    }

    /// The command that repeats this run.
    pub fn repeat_command(self) -> String {
        format!("make soak SEED={} MINUTES={}", self.seed, self.minutes)
    }
}

pub fn soak_options() -> SoakOptions {
    let number = |name: &str| {
        let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
        Some(text.parse::<u64>().unwrap_or_else(|error| panic!("{name}={text:?}: {error}")))
    };
    let minutes = number(MINUTES).unwrap_or(1);
    SoakOptions { minutes, seed: number(SEED).unwrap_or_else(|| u64::from(std::process::id())) }
}

/// Prints the plan.
pub fn announce(options: &SoakOptions, steps: &[impl std::fmt::Display]) {
    println!("{} repeats this: {} steps", options.repeat_command(), steps.len());
    for (number, step) in (1..).zip(steps) {
        println!("  {number:3}. {step}");
    }
}

/// Runs a plan. Prints each step before it is taken.
pub fn soak() {
    let options = soak_options();
    let pace = if options.minutes > 1 { Pace::LONG } else { Pace::SHORT };
    let steps = plan(options.seed, options.time(), pace);
    announce(&options, &steps);

    let mut fleet = ClusterFleet::start(options.minutes);
    println!("the fleet is running");
    for (number, step) in (1..).zip(&steps) {
        println!("step {number} of {}: {step}", steps.len());
        execute(&mut fleet, step);
        fleet.check(&format!("step {number} ({step}) of `{}`", options.repeat_command()));
    }
}

/// Executes one step. Also for tests with a step of their own.
pub fn execute(fleet: &mut ClusterFleet, step: &FaultStep) {
    if step.quiet {
        fleet.load.pause();
    } else {
        // Without a recent change of the version, a fault would hit an idle fleet.
        fleet.wait_for_load();
    }
    pause_for(step.before);
    let first = fleet.begin(step.fault);
    let second = step.second.map(|second| fleet.begin(second));
    pause_for(step.lasts);
    fleet.end(first);
    if let Some(second) = second {
        fleet.end(second);
    }
}
