//! Times in the store are other servers': whoever decides has to have seen a thing for as long as it is to last.

use crate::operate::Command;
use crate::testing::World;

use super::Ride;
use super::ride::{minutes, percents, seconds};
use muster_core::rollout::strategy::Promote;

const NOBODY: [String; 0] = [];

/// Another server goes on, whose clock is ten minutes ahead, and that has known of everything for so many seconds.
fn taken_over(ride: &mut Ride, known: i64) {
    ride.world.pass(minutes(10));
    ride.world.known_since = Some(ride.world.now - seconds(known));
}

#[test]
fn a_server_whose_clock_is_ahead_watches_a_wave_for_as_long() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].soak = Some(minutes(5));
    strategy.waves[0].promote = Promote::Manual;
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    ride.well(&first[0]);
    assert!(ride.say(&Command::Promote { full: true }).unwrap());
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
fn a_server_whose_clock_is_ahead_watches_a_node_for_as_long() {
    let mut strategy = percents(&[100]);
    strategy.soak = seconds(30);
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), strategy);
    let first = ride.go();
    assert_eq!(ride.well(&first[0]), NOBODY);
    taken_over(&mut ride, 10);
    assert_eq!(ride.go(), NOBODY);
    assert_eq!(ride.after(seconds(17)), NOBODY);
    assert_eq!(ride.after(seconds(1)).len(), 1);
}

#[test]
fn a_server_whose_clock_is_behind_waits_until_it_has_caught_up() {
    let mut strategy = percents(&[50, 100]);
    strategy.waves[0].soak = Some(minutes(5));
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), strategy);
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
