//! Nodes that join, leave, are skipped, or have no machine yet.

use muster_core::rollout::record::{FailureKind, PauseReason, RolloutPhase};

use crate::command::{CommandRefused, RolloutCommand};
use crate::testing::{FakeFleet, RunEnd, node};

use super::Ride;
use super::ride::{budget, failed, minutes, percents, seconds};

const NOBODY: [String; 0] = [];

#[test]
fn late_node_moves_with_the_last_wave_of_its_stage() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 4, "a b")]), percents(&[25, 100]));
    let first = ride.go();
    ride.world.node("web5", "web", "a", &[]);
    assert_eq!(ride.version_of("web5"), "v1");
    ride.world.answers("web5", RunEnd::Validated);
    ride.well(&first[0]);
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    assert_eq!(ride.granted.last().map(String::as_str), Some("web5"));
    assert_eq!(ride.version_of("web5"), "v2");
}

#[test]
fn late_node_of_a_passed_stage_moves_last() {
    let mut asked = crate::testing::request("v2", percents(&[100]));
    asked.after = crate::testing::after(&[("web", "db")]);
    let mut ride = Ride::of(FakeFleet::of(&[("web", 2, "a b"), ("db", 1, "a")]), &asked);
    ride.go();
    let web = ride.well("db1");
    ride.world.node("db2", "db", "b", &[]);
    ride.world.answers("db2", RunEnd::Validated);
    assert_eq!(ride.go(), ["db2"], "its own role has a slot");
    assert_eq!(web.len(), 1);
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
}

#[test]
fn leaving_node_blocks_nothing() {
    for leave in [FakeFleet::leaves, FakeFleet::remove] {
        let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), budget(1, None));
        let granted = ride.go();
        leave(&mut ride.world, &granted[0]);
        assert_eq!(ride.go().len(), 1, "its slot is free");
        assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    }
}

#[test]
fn node_that_left_meanwhile_is_not_granted() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), budget(1, None));
    let change = ride.look().change.unwrap();
    let txn = change.txn(&ride.world.fleet, ride.held().1).unwrap();
    ride.world.leaves(change.grants[0].node.as_str());
    let guard = ride.world.commit(&txn).unwrap_err();
    assert_eq!(guard.key(), ride.world.keys.node(&change.grants[0].node));
}

#[test]
fn unprovisioned_node_starts_with_the_target() {
    let mut world = FakeFleet::of(&[("web", 2, "a b")]);
    world.node("web3", "web", "a", &[]);
    world.unmade("web3");
    let mut ride = Ride::begin(world, budget(1, None));
    assert_eq!(ride.go().len(), 1, "it uses no budget up");
    assert_eq!(ride.version_of("web3"), "v1");
    let granted = ride.granted.clone();
    let next = ride.well(&granted[0]);
    ride.well(&next[0]);
    assert_eq!(ride.phase(), RolloutPhase::Completed);
    assert_eq!(ride.version_of("web3"), "v2");
}

#[test]
fn disconnected_node_fails_after_its_deadline() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 3, "a b c")]), budget(2, None));
    ride.world.silent("web1", seconds(0));
    let away_since = ride.world.now;
    while let Some(name) = ride.on_the_way().first().map(ToString::to_string).or_else(|| ride.go().first().cloned()) {
        ride.well(&name);
    }
    assert_eq!(ride.look().recheck, Some(away_since + minutes(30)));
    ride.after(minutes(30));
    let phase = ride.phase();
    let RolloutPhase::Paused { why: PauseReason::Failures { nodes, .. } } = phase else { panic!("{phase:?}") };
    assert_eq!(nodes[0].how, FailureKind::Unreachable);
    // After the resume it is moved when it is back.
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    ride.go();
    assert_eq!(ride.phase(), RolloutPhase::Completed);
    assert_eq!(ride.version_of("web1"), "v2");
}

#[test]
fn earlier_disconnected_node_does_not_fail_the_rollout() {
    let mut world = FakeFleet::of(&[("web", 3, "a b c")]);
    world.silent("web1", minutes(5));
    let mut ride = Ride::begin(world, budget(2, None));
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    assert_eq!(ride.granted.len(), 2);
}

#[test]
fn failed_repair_uses_budget_and_is_no_failure() {
    let mut world = FakeFleet::of(&[("web", 3, "a b c")]);
    world.answers("web2", failed());
    let mut ride = Ride::begin(world, budget(2, None));
    let granted = ride.go();
    assert_eq!((granted[0].as_str(), granted.len()), ("web2", 2), "it comes first, and another one");
    assert_eq!(ride.answers("web2", failed()), NOBODY);
    assert_eq!(ride.phase(), RolloutPhase::Running);
    assert_eq!(ride.well(&granted[1]).len(), 1);
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
}

#[test]
fn skipped_node_keeps_its_version() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 3, "a b c")]), budget(1, None));
    let generation = |ride: &Ride, name: &str| ride.world.fleet.desired_of(&node(name)).unwrap().generation;
    let last = ride.plan.plan().nodes().last().unwrap().node.clone();
    let before = generation(&ride, last.as_str());
    assert!(ride.say(&RolloutCommand::Skip { node: last.clone() }).unwrap());
    assert!(!ride.say(&RolloutCommand::Skip { node: last.clone() }).unwrap());
    let first = ride.go();
    ride.answers(&first[0], failed());
    assert!(ride.say(&RolloutCommand::Skip { node: node(&first[0]) }).unwrap(), "it was granted, and stays at that");
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    assert_eq!(ride.go(), Vec::<String>::new(), "it is down, so nobody else may be");
    assert!(ride.say(&RolloutCommand::Release { node: node(&first[0]) }).unwrap());
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    assert_eq!((ride.version_of(last.as_str()).as_str(), generation(&ride, last.as_str())), ("v1", before));
    assert_eq!(ride.version_of(&first[0]), "v2");
    assert_eq!(ride.granted.len(), 2);
}

#[test]
fn unknown_node_is_refused_with_a_suggestion() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 3, "a b c")]), budget(1, None));
    let refused = ride.say(&RolloutCommand::Skip { node: node("wbe1") }).unwrap_err();
    assert_eq!(refused.to_string(), "there is no node wbe1 in the design; did you mean web1?");
    let refused = ride.say(&RolloutCommand::Retry(crate::command::RetryTarget::Nodes(vec![node("web1")]))).unwrap_err();
    assert!(matches!(refused, CommandRefused::NotFailed { .. }), "{refused}");
}

#[test]
fn node_that_rolled_itself_back_has_failed() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), budget(1, None));
    let granted = ride.go();
    ride.world.ends(&granted[0], "v1", RunEnd::Validated);
    ride.go();
    assert_eq!(ride.phase(), RolloutPhase::Running, "a check of what it ran before is no answer");
    ride.world.rolled_itself_back(&granted[0], "v2", "v1");
    ride.go();
    let phase = ride.phase();
    let RolloutPhase::Paused { why: PauseReason::Failures { nodes, .. } } = phase else { panic!("{phase:?}") };
    assert_eq!(nodes[0].how, FailureKind::RolledBack);
}
