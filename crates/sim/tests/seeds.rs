//! Runs 10,000 seeds with all faults: no rule is violated, a seed gives the same run twice, and virtual time is fast.
//!
//! `MUSTER_SIM_SEEDS=100000` runs more of them, and `MUSTER_SIM_BASE=7` runs those from seed 7,000,000 on. `muster-sim --seed
//! N` prints one run line by line.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::ops::Range;
use std::time::Duration;

use muster_sim::simulation::faults::{Fault, FaultCounts};
use muster_sim::simulation::seed_run::{SeedRun, run_seed, takeover};
use rustix::time::{ClockId, clock_gettime};

/// The number of tests that share the seeds, for parallel runs.
const PARTS: u64 = 8;
const SEEDS: u64 = 10_000;
/// The distance between the seeds of two bases.
const BASE: u64 = 1_000_000;
/// One in this many seeds is run twice.
const TWICE: u64 = 100;
/// From this many runs on, every kind of fault must have occurred.
const ENOUGH: u64 = 1_000;
/// The number of runs for the speed measurement.
const TIMED: u64 = 100;
/// The required speed, in multiples of real time.
const SPEED: f64 = 1_000.0;

/// A number from the environment. An invalid one must not count as the default.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?}: use a number without a sign")))
}

fn seeds() -> Range<u64> {
    let first = number("MUSTER_SIM_BASE").unwrap_or(0).wrapping_mul(BASE);
    first..first.saturating_add(number("MUSTER_SIM_SEEDS").unwrap_or(SEEDS))
}

/// Totals of several runs.
#[derive(Default)]
struct SeedTotals {
    runs: u64,
    faults: FaultCounts,
    length: Duration,
    /// CPU time of this thread. The wall clock would include other load of the machine.
    computed: Duration,
}

impl SeedTotals {
    fn add(&mut self, seed: u64) -> SeedRun {
        let began = computed();
        let run = run_seed(seed);
        self.computed += computed() - began;
        if let Some(violation) = &run.violation {
            panic!("{}", run.report(violation));
        }
        self.faults.add(&run.faults);
        self.length += run.length;
        self.runs += 1;
        run
    }

    /// Multiples of real time.
    fn speed(&self) -> f64 {
        self.length.as_secs_f64() / self.computed.as_secs_f64()
    }

    fn print(&self) {
        print!("{}", self.faults);
        let (length, computed) = (self.length.as_secs_f64(), self.computed.as_secs_f64());
        println!("{} runs of {length:.0} s, computed in {computed:.1} s", self.runs);
        println!("{:.0} times as fast as real time", self.speed());
    }
}

/// CPU time of this thread.
fn computed() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn part(number: u64) {
    let (mut totals, seeds) = (SeedTotals::default(), seeds());
    println!("seeds {seeds:?}, each eighth");
    for (place, seed) in (0..).zip(seeds).filter(|(place, _)| place % PARTS == number) {
        let run = totals.add(seed);
        if (place / PARTS).is_multiple_of(TWICE) {
            assert_eq!(run_seed(seed).hash, run.hash, "seed {seed} gives a different run the second time");
        }
    }
    totals.print();
    // Each part has enough runs to see every kind of fault.
    for fault in Fault::ALL {
        assert!(
            totals.runs < ENOUGH || totals.faults.occurrences(fault) > 0,
            "did not occur in any run: {}",
            fault.words()
        );
    }
}

macro_rules! parts {
    ($($name:ident: $number:expr),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                part($number);
            }
        )*
    };
}

parts! {
    part_1_of_8: 0,
    part_2_of_8: 1,
    part_3_of_8: 2,
    part_4_of_8: 3,
    part_5_of_8: 4,
    part_6_of_8: 5,
    part_7_of_8: 6,
    part_8_of_8: 7,
}

#[test]
fn virtual_time_is_much_faster_than_real_time() {
    // The first run builds the fleets that all others start with.
    run_seed(0);
    let mut totals = SeedTotals::default();
    for seed in 0..TIMED {
        totals.add(seed);
    }
    totals.print();
    assert!(totals.speed() >= SPEED, "virtual time is only {:.0} times as fast as real time", totals.speed());
}

#[test]
fn takeover_takes_less_than_fifteen_seconds() {
    let times: Vec<Duration> = (0..100).flat_map(takeover).collect();
    assert_eq!(times.len(), 100, "each run has one");
    let longest = times.iter().max().unwrap();
    println!("the longest takeover took {longest:?}");
    assert!(*longest < Duration::from_secs(15), "{longest:?}");
}
