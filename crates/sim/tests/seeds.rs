//! Ten thousand runs, with everything going wrong that can: no rule is broken, a seed tells the same run twice, and
//! virtual time is much faster than real time.
//!
//! `MUSTER_SIM_SEEDS=100000` tells more of them, and `MUSTER_SIM_BASE=7` others: those from seed 7,000,000 on.
//! `muster-sim --seed N` tells one, line by line.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::ops::Range;
use std::time::Duration;

use muster_sim::simulation::fault_counts::{Fault, FaultCounts};
use muster_sim::simulation::seed_run::{SeedRun, run_seed, takeover};
use rustix::time::{ClockId, clock_gettime};

/// The runs are totals by so many tests, so that all processors have something to do.
const PARTS: u64 = 8;
const SEEDS: u64 = 10_000;
/// How far the runs of one base are from those of the next.
const BASE: u64 = 1_000_000;
/// Every so many runs one is totals twice.
const TWICE: u64 = 100;
/// From so many runs on, everything that can go wrong must have gone wrong in one of them.
const ENOUGH: u64 = 1_000;
/// The speed is measured on so many.
const TIMED: u64 = 100;
/// How much faster than real time virtual time must be.
const SPEED: f64 = 1_000.0;

/// A number from the environment. One that cannot be read must not pass for "as always".
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?}: say a number without a sign")))
}

fn seeds() -> Range<u64> {
    let first = number("MUSTER_SIM_BASE").unwrap_or(0).wrapping_mul(BASE);
    first..first.saturating_add(number("MUSTER_SIM_SEEDS").unwrap_or(SEEDS))
}

/// Stories, all together.
#[derive(Default)]
struct SeedTotals {
    runs: u64,
    faults: FaultCounts,
    length: Duration,
    /// What this thread has computed for them. The clock on the wall would tell what else the machine had to do.
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

    /// How many times as fast as real time.
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

/// For how long a processor has worked for this thread.
fn computed() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn part(number: u64) {
    let (mut totals, seeds) = (SeedTotals::default(), seeds());
    println!("seeds {seeds:?}, each eighth");
    for (place, seed) in (0..).zip(seeds).filter(|(place, _)| place % PARTS == number) {
        let run = totals.add(seed);
        if (place / PARTS).is_multiple_of(TWICE) {
            assert_eq!(run_seed(seed).hash, run.hash, "seed {seed} tells another run the second time");
        }
    }
    totals.print();
    // Each part has enough of them to see everything by itself, so nobody has to add the parts up.
    for fault in Fault::ALL {
        assert!(totals.runs < ENOUGH || totals.faults.of(fault) > 0, "in no run: {}", fault.words());
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
    // The first of all makes the fleets that the others begin with.
    run_seed(0);
    let mut totals = SeedTotals::default();
    for seed in 0..TIMED {
        totals.add(seed);
    }
    totals.print();
    assert!(totals.speed() >= SPEED, "virtual time is only {:.0} times as fast as real time", totals.speed());
}

#[test]
fn another_server_takes_over_in_less_than_fifteen_seconds() {
    let times: Vec<Duration> = (0..100).flat_map(takeover).collect();
    assert_eq!(times.len(), 100, "each run has one");
    let longest = times.iter().max().unwrap();
    println!("the longest takeover took {longest:?}");
    assert!(*longest < Duration::from_secs(15), "{longest:?}");
}
