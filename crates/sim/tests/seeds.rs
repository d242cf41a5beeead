//! Ten thousand stories, with everything going wrong that can: no rule is broken, a seed tells the same story twice, and
//! virtual time is much faster than real time.
//!
//! `MUSTER_SIM_SEEDS=100000` tells more of them; `muster-sim --seed N` tells one, line by line.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::time::{Duration, Instant};

use muster_sim::simulation::mishap::{Mishap, Tally};
use muster_sim::simulation::scenario::{takeover, tell};

/// The stories are told by so many tests, so that all processors have something to do.
const PARTS: u64 = 8;
const SEEDS: u64 = 10_000;
/// Every so many stories one is told twice.
const TWICE: u64 = 100;

fn seeds() -> u64 {
    std::env::var("MUSTER_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS)
}

fn part(number: u64) {
    let began = Instant::now();
    let (mut tally, mut length, mut told) = (Tally::default(), Duration::ZERO, 0_u64);
    for seed in (0..seeds()).filter(|seed| seed % PARTS == number) {
        let story = tell(seed);
        if let Some(violation) = &story.violation {
            panic!("{}", story.report(violation));
        }
        if (seed / PARTS).is_multiple_of(TWICE) {
            assert_eq!(tell(seed).hash, story.hash, "seed {seed} tells another story the second time");
        }
        tally.add(&story.tally);
        length += story.length;
        told += 1;
    }
    let ratio = length.as_secs_f64() / began.elapsed().as_secs_f64();
    println!("{tally}{told} stories of {:.0} s, {ratio:.0} times as fast as real time", length.as_secs_f64());
    assert!(ratio >= 1_000.0, "virtual time is only {ratio:.0} times as fast as real time");
    for mishap in Mishap::ALL {
        assert!(told < 100 || tally.of(mishap) > 0, "in no story: {}", mishap.words());
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
fn another_server_takes_over_in_less_than_fifteen_seconds() {
    let times: Vec<Duration> = (0..100).flat_map(takeover).collect();
    assert_eq!(times.len(), 100, "each story has one");
    let longest = times.iter().max().unwrap();
    println!("the longest takeover took {longest:?}");
    assert!(*longest < Duration::from_secs(15), "{longest:?}");
}
