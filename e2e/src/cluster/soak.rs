//! A plan, carried out.

use std::time::Duration;

use crate::cluster::fault::last_for;
use crate::cluster::fleet::Fleet;
use crate::cluster::plan::{Pace, Step, plan};

/// Which plan; without it, another one each time.
pub const SEED: &str = "MUSTER_SOAK_SEED";
/// For how long; without it, a minute.
pub const MINUTES: &str = "MUSTER_SOAK_MINUTES";

/// Says what it does before it does it, so that whoever finds it dead knows where.
pub fn soak() {
    let number = |name: &str| {
        let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
        Some(text.parse::<u64>().unwrap_or_else(|error| panic!("{name}={text:?}: {error}")))
    };
    let minutes = number(MINUTES).unwrap_or(1);
    let seed = number(SEED).unwrap_or_else(|| u64::from(std::process::id()));
    let pace = if minutes > 1 { Pace::LONG } else { Pace::SHORT };
    let steps = plan(seed, Duration::from_secs(60 * minutes), pace);
    let again = format!("make soak SEED={seed} MINUTES={minutes}");
    println!("{again} repeats this: {} steps", steps.len());
    for (number, step) in (1..).zip(&steps) {
        println!("  {number:3}. {step}");
    }

    let mut fleet = Fleet::start(minutes);
    println!("the fleet is at work");
    for (number, step) in (1..).zip(&steps) {
        println!("step {number} of {}: {step}", steps.len());
        carry_out(&mut fleet, step);
        fleet.judge(&format!("step {number} ({step}) of `{again}`"));
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
