//! Nodes that join, leave, are set aside, or were never there.

use muster_core::rollout::record::{FailureKind, PauseReason, RolloutPhase};

use crate::operate::{Command, OperateRefused};
use crate::testing::{Ended, World, node};

use super::Ride;
use super::ride::{budget, failed, minutes, percents, seconds};

const NOBODY: [String; 0] = [];

#[test]
fn who_joins_late_stays_at_the_old_version_until_the_last_wave() {
    let mut ride = Ride::begin(World::of(&[("web", 4, "a b")]), percents(&[25, 100]));
    let first = ride.go();
    ride.world.node("web5", "web", "a", &[]);
    assert_eq!(ride.version_of("web5"), "v1");
    ride.world.answers("web5", Ended::Validated);
    ride.well(&first[0]);
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    assert_eq!(ride.granted.last().map(String::as_str), Some("web5"));
    assert_eq!(ride.version_of("web5"), "v2");
}

#[test]
fn who_joins_when_its_stage_is_over_goes_with_the_last_of_all() {
    let mut asked = crate::testing::request("v2", percents(&[100]));
    asked.after = crate::testing::after(&[("web", "db")]);
    let mut ride = Ride::of(World::of(&[("web", 2, "a b"), ("db", 1, "a")]), &asked);
    ride.go();
    let web = ride.well("db1");
    ride.world.node("db2", "db", "b", &[]);
    ride.world.answers("db2", Ended::Validated);
    assert_eq!(ride.go(), ["db2"], "its own role has a slot");
    assert_eq!(web.len(), 1);
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
}

#[test]
fn who_leaves_blocks_nobody() {
    for leave in [World::leaves, World::remove] {
        let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), budget(1, None));
        let granted = ride.go();
        leave(&mut ride.world, &granted[0]);
        assert_eq!(ride.go().len(), 1, "its slot is free");
        assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    }
}

#[test]
fn a_node_that_left_meanwhile_is_not_granted() {
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), budget(1, None));
    let change = ride.look().change.unwrap();
    let txn = change.txn(&ride.world.fleet, ride.held().1).unwrap();
    ride.world.leaves(change.grants[0].node.as_str());
    let guard = ride.world.commit(&txn).unwrap_err();
    assert_eq!(guard.key(), ride.world.keys.node(&change.grants[0].node));
}

#[test]
fn a_node_without_a_machine_is_not_waited_for_and_begins_with_the_target() {
    let mut world = World::of(&[("web", 2, "a b")]);
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
fn a_node_whose_agent_is_away_is_waited_for_and_then_given_up() {
    let mut ride = Ride::begin(World::of(&[("web", 3, "a b c")]), budget(2, None));
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
    // Somebody has seen it; and when it is back it is moved after all.
    assert!(ride.say(&Command::Resume).unwrap());
    ride.go();
    assert_eq!(ride.phase(), RolloutPhase::Completed);
    assert_eq!(ride.version_of("web1"), "v2");
}

#[test]
fn a_node_that_was_away_before_it_began_does_not_fail_it() {
    let mut world = World::of(&[("web", 3, "a b c")]);
    world.silent("web1", minutes(5));
    let mut ride = Ride::begin(world, budget(2, None));
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    assert_eq!(ride.granted.len(), 2);
}

#[test]
fn a_repair_that_fails_again_proves_nothing_and_uses_the_budget_up() {
    let mut world = World::of(&[("web", 3, "a b c")]);
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
fn a_skipped_node_stays_where_it_is_for_good_and_is_waited_for_no_longer() {
    let mut ride = Ride::begin(World::of(&[("web", 3, "a b c")]), budget(1, None));
    let generation = |ride: &Ride, name: &str| ride.world.fleet.desired_of(&node(name)).unwrap().generation;
    let last = ride.plan.plan().nodes().last().unwrap().node.clone();
    let before = generation(&ride, last.as_str());
    assert!(ride.say(&Command::Skip { node: last.clone() }).unwrap());
    assert!(!ride.say(&Command::Skip { node: last.clone() }).unwrap());
    let first = ride.go();
    ride.answers(&first[0], failed());
    assert!(ride.say(&Command::Skip { node: node(&first[0]) }).unwrap(), "it was granted, and stays at that");
    assert!(ride.say(&Command::Resume).unwrap());
    assert_eq!(ride.go(), Vec::<String>::new(), "it is down, so nobody else may be");
    assert!(ride.say(&Command::Release { node: node(&first[0]) }).unwrap());
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    assert_eq!((ride.version_of(last.as_str()).as_str(), generation(&ride, last.as_str())), ("v1", before));
    assert_eq!(ride.version_of(&first[0]), "v2");
    assert_eq!(ride.granted.len(), 2);
}

#[test]
fn an_unknown_node_is_refused_with_the_one_that_was_meant() {
    let mut ride = Ride::begin(World::of(&[("web", 3, "a b c")]), budget(1, None));
    let refused = ride.say(&Command::Skip { node: node("wbe1") }).unwrap_err();
    assert_eq!(refused.to_string(), "there is no node wbe1 in the design; did you mean web1?");
    let refused = ride.say(&Command::Retry(crate::operate::Retried::Nodes(vec![node("web1")]))).unwrap_err();
    assert!(matches!(refused, OperateRefused::NotFailed { .. }), "{refused}");
}

#[test]
fn a_node_that_went_back_by_itself_has_failed() {
    let mut ride = Ride::begin(World::of(&[("web", 2, "a b")]), budget(1, None));
    let granted = ride.go();
    ride.world.ends(&granted[0], "v1", Ended::Validated);
    ride.go();
    assert_eq!(ride.phase(), RolloutPhase::Running, "a check of what it ran before is no answer");
    ride.world.went_back(&granted[0], "v2", "v1");
    ride.go();
    let phase = ride.phase();
    let RolloutPhase::Paused { why: PauseReason::Failures { nodes, .. } } = phase else { panic!("{phase:?}") };
    assert_eq!(nodes[0].how, FailureKind::RolledBack);
}
