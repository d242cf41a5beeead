//! Runs 10,000 seeds with all faults: no rule is violated, a seed gives the same run twice, and virtual time is fast.
//!
//! 1,000 seeds are fixed, including those that have violated a rule before. 9,000 follow from the commit: its id is in
//! `MUSTER_SIM_COMMIT`, or is read from git. `MUSTER_SIM_SEEDS=100000` runs other seeds instead of those of the commit, and
//! `MUSTER_SIM_BASE=7` runs those from seed 7,000,000 on. `muster-sim --seed N` prints one run line by line.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::ops::Range;
use std::process::Command;
use std::time::Duration;

use muster_sim::simulation::coverage::{ArmCoverage, DecisionArm};
use muster_sim::simulation::faults::{Fault, FaultCounts};
use muster_sim::simulation::seed_run::{SeedRun, run_seed, takeover};
use muster_sim::simulation::seed_set::{DRAWN_SEEDS, drawn_seeds, fixed_seeds, seeds_without_commit};
use rustix::time::{ClockId, clock_gettime};

/// The number of tests that share the seeds, for parallel runs.
const PARTS: u64 = 8;
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

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// A number from the environment. An invalid one must not count as the default.
fn number(name: &str) -> Option<u64> {
    let text = variable(name)?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?}: use a number without a sign")))
}

/// The id of the commit that git has checked out.
fn commit_of_git() -> Option<String> {
    let mut git = Command::new("git");
    let git = git.args(["rev-parse", "--verify", "--quiet", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = git.output().ok()?;
    let id = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| id.trim().to_owned())
}

/// The seeds that the parts share, and where they are from.
fn shared_seeds() -> (Range<u64>, String) {
    let (base, count) = (number("MUSTER_SIM_BASE"), number("MUSTER_SIM_SEEDS"));
    if base.is_some() || count.is_some() {
        let first = base.unwrap_or(0).wrapping_mul(BASE);
        let seeds = first..first.saturating_add(count.unwrap_or(DRAWN_SEEDS));
        return (seeds, "MUSTER_SIM_BASE and MUSTER_SIM_SEEDS".to_owned());
    }
    match variable("MUSTER_SIM_COMMIT").or_else(commit_of_git) {
        Some(commit) => {
            let seeds = drawn_seeds(&commit);
            let seeds = seeds.unwrap_or_else(|| panic!("MUSTER_SIM_COMMIT={commit:?}: use the id of a commit"));
            (seeds, format!("commit {commit}"))
        }
        None => (seeds_without_commit(), "no commit (git has no HEAD here): the same seeds each time".to_owned()),
    }
}

/// Totals of several runs.
#[derive(Default)]
struct SeedTotals {
    runs: u64,
    faults: FaultCounts,
    arms: ArmCoverage,
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
        self.arms.add(&run.arms);
        self.length += run.length;
        self.runs += 1;
        run
    }

    /// Runs these seeds, and some of them twice.
    fn add_all(&mut self, seeds: impl IntoIterator<Item = u64>) {
        for (place, seed) in (0_u64..).zip(seeds) {
            let run = self.add(seed);
            if place.is_multiple_of(TWICE) {
                assert_eq!(run_seed(seed).hash, run.hash, "seed {seed} gives a different run the second time");
            }
        }
    }

    /// Multiples of real time.
    fn speed(&self) -> f64 {
        self.length.as_secs_f64() / self.computed.as_secs_f64()
    }

    fn print(&self) {
        print!("{}{}", self.faults, self.arms);
        let (length, computed) = (self.length.as_secs_f64(), self.computed.as_secs_f64());
        println!("{} runs of {length:.0} s, computed in {computed:.1} s", self.runs);
        println!("{:.0} times as fast as real time", self.speed());
    }

    /// Enough runs have every kind of fault.
    fn check_faults(&self) {
        for fault in Fault::ALL {
            assert!(
                self.runs < ENOUGH || self.faults.occurrences(fault) > 0,
                "did not occur in any run: {}",
                fault.words()
            );
        }
    }
}

/// CPU time of this thread.
fn computed() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn part(number: u64) {
    let (seeds, source) = shared_seeds();
    println!("seeds {seeds:?}, each eighth, from {source}");
    let mut totals = SeedTotals::default();
    totals.add_all((0..).zip(seeds).filter(|(place, _)| place % PARTS == number).map(|(_, seed)| seed));
    totals.print();
    totals.check_faults();
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

/// The fixed seeds are as many as those of a part. Every decision is reached, or `DecisionArm` says why it is not.
#[test]
fn fixed_seeds_reach_every_decision() {
    let mut totals = SeedTotals::default();
    totals.add_all(fixed_seeds());
    totals.print();
    totals.check_faults();
    let unreached: Vec<&str> = totals
        .arms
        .unreached()
        .filter(|arm| arm.out_of_reach().or(arm.rare()).is_none())
        .map(DecisionArm::words)
        .collect();
    assert!(
        unreached.is_empty(),
        "no fixed seed reaches these decisions; raise a rate, or say in coverage/arms.rs why none can: {unreached:#?}"
    );
    let reached = DecisionArm::ALL.into_iter().filter(|arm| totals.arms.seeds(*arm) > 0);
    let reached: Vec<&str> = reached.filter(|arm| arm.out_of_reach().is_some()).map(DecisionArm::words).collect();
    assert!(reached.is_empty(), "coverage/arms.rs says that no seed reaches these decisions: {reached:#?}");
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
