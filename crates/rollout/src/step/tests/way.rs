//! A rollout from its first grant to its end.

use muster_core::rollout::record::RolloutPhase;

use crate::testing::FakeFleet;

use super::Ride;
use super::ride::{budget, percents};

#[test]
fn nodes_move_one_by_one_until_complete() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 3, "a b")]), budget(1, None));
    let first = ride.go();
    assert_eq!(first.len(), 1);
    assert_eq!(ride.go(), Vec::<String>::new(), "its slot is taken");
    let second = ride.well(&first[0]);
    assert_eq!(second.len(), 1);
    let third = ride.well(&second[0]);
    assert_eq!(ride.phase(), RolloutPhase::Running);
    assert_eq!(ride.well(&third[0]), Vec::<String>::new());
    assert_eq!(ride.phase(), RolloutPhase::Completed);
    let planned: Vec<String> = ride.plan.plan().nodes().map(|planned| planned.node.to_string()).collect();
    assert_eq!(ride.granted, planned, "the plan is what happens");
    assert!(ride.world.fleet.active_rollout().unwrap().0.completed);
    assert_eq!(ride.look(), super::super::Step::default(), "it is over");
}

#[test]
fn wave_ends_before_the_next_starts() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 4, "a b")]), percents(&[25, 100]));
    let first = ride.go();
    assert_eq!((first.len(), ride.record().waves.len()), (1, 1));
    let second = ride.well(&first[0]);
    assert_eq!((second.len(), ride.record().waves.len()), (1, 2));
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    assert_eq!(ride.granted.len(), 4);
}
