//! A plan, carried out.

use std::time::Duration;

use crate::cluster::fault::last_for;
use crate::cluster::fleet::Fleet;
use crate::cluster::plan::{Pace, Step, plan};

/// Which plan; without it, another one each time.
pub const SEED: &str = "MUSTER_SOAK_SEED";
/// For how long; without it, a minute.
pub const MINUTES: &str = "MUSTER_SOAK_MINUTES";

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub seed: u64,
    pub minutes: u64,
}

impl Asked {
    pub fn time(self) -> Duration {
        Duration::from_secs(60 * self.minutes)
    }

    /// How to have the same again.
    pub fn again(self) -> String {
        format!("make soak SEED={} MINUTES={}", self.seed, self.minutes)
    }
}

pub fn asked_for() -> Asked {
    let number = |name: &str| {
        let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
        Some(text.parse::<u64>().unwrap_or_else(|error| panic!("{name}={text:?}: {error}")))
    };
    let minutes = number(MINUTES).unwrap_or(1);
    Asked { minutes, seed: number(SEED).unwrap_or_else(|| u64::from(std::process::id())) }
}

/// Says what is going to happen.
pub fn announce(asked: &Asked, steps: &[impl std::fmt::Display]) {
    println!("{} repeats this: {} steps", asked.again(), steps.len());
    for (number, step) in (1..).zip(steps) {
        println!("  {number:3}. {step}");
    }
}

/// Says what it does before it does it, so that whoever finds it dead knows where.
pub fn soak() {
    let asked = asked_for();
    let pace = if asked.minutes > 1 { Pace::LONG } else { Pace::SHORT };
    let steps = plan(asked.seed, asked.time(), pace);
    announce(&asked, &steps);

    let mut fleet = Fleet::start(asked.minutes);
    println!("the fleet is at work");
    for (number, step) in (1..).zip(&steps) {
        println!("step {number} of {}: {step}", steps.len());
        carry_out(&mut fleet, step);
        fleet.judge(&format!("step {number} ({step}) of `{}`", asked.again()));
    }
}

/// Also for a test that has chosen its step itself.
pub fn carry_out(fleet: &mut Fleet, step: &Step) {
    if step.quiet {
        fleet.load.pause();
    } else {
        // What hits a fleet between two changes of the version hits nobody.
        fleet.load_goes_on();
    }
    last_for(step.before);
    let first = fleet.begin(step.fault);
    let second = step.second.map(|second| fleet.begin(second));
    last_for(step.lasts);
    fleet.end(first);
    if let Some(second) = second {
        fleet.end(second);
    }
}
