//! Clock differences: the deciding replica must have observed a state for its whole duration.

use crate::command::RolloutCommand;
use crate::testing::FakeFleet;

use super::Ride;
use super::ride::{minutes, percents, seconds};
use muster_core::rollout::strategy::Promote;

const NOBODY: [String; 0] = [];

/// Another replica takes over. Its clock is ten minutes ahead, and it has observed everything for this many seconds.
fn taken_over(ride: &mut Ride, known: i64) {
    ride.world.pass(minutes(10));
    ride.world.known_since = Some(ride.world.now - seconds(known));
}

#[test]
fn clock_ahead_does_not_shorten_a_wave_soak() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].soak = Some(minutes(5));
    strategy.waves[0].promote = Promote::Manual;
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    ride.well(&first[0]);
    assert!(ride.say(&RolloutCommand::Promote { full: true }).unwrap());
    let before = ride.record();

    taken_over(&mut ride, 60);
    assert_eq!(ride.go(), NOBODY);
    assert_eq!(ride.record().waves, before.waves, "what was said of the wave holds");
    let until = ride.world.now + minutes(4) - seconds(2);
    assert_eq!(ride.look().recheck, Some(until), "clocks that agree are that close");
    assert_eq!(ride.after(minutes(4) - seconds(3)), NOBODY);
    assert_eq!(ride.after(seconds(1)).len(), 1);
}

#[test]
fn clock_ahead_does_not_shorten_a_node_soak() {
    let mut strategy = percents(&[100]);
    strategy.soak = seconds(30);
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    assert_eq!(ride.well(&first[0]), NOBODY);
    taken_over(&mut ride, 10);
    assert_eq!(ride.go(), NOBODY);
    assert_eq!(ride.after(seconds(17)), NOBODY);
    assert_eq!(ride.after(seconds(1)).len(), 1);
}

#[test]
fn clock_behind_waits_until_it_has_caught_up() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].soak = Some(minutes(5));
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    ride.well(&first[0]);
    let settled = ride.record().waves[0].settled.unwrap();
    ride.world.now = settled - minutes(10);
    ride.world.known_since = Some(ride.world.now - minutes(60));
    assert_eq!(ride.go(), NOBODY);
    ride.world.now = settled;
    assert_eq!(ride.go(), NOBODY);
    assert_eq!(ride.after(minutes(5)).len(), 1);
}
