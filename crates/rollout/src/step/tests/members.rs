//! Nodes that join, leave, are skipped, or have no machine yet.

use muster_core::rollout::record::{FailureKind, PauseReason, RolloutPhase};

use crate::command::{CommandRefused, RolloutCommand};
use crate::testing::{FakeFleet, RunEnd, node};

use super::RolloutHarness;
use super::harness::{budget, failed, minutes, percents, seconds};

const NO_NODES: [String; 0] = [];

#[test]
fn late_node_moves_with_the_last_wave_of_its_stage() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 4, "a b")]), percents(&[25, 100]));
    let first = harness.settle();
    harness.world.node("web5", "web", "a", &[]);
    assert_eq!(harness.desired_version("web5"), "v1");
    harness.world.answers("web5", RunEnd::Validated);
    harness.validate(&first[0]);
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
    assert_eq!(harness.granted.last().map(String::as_str), Some("web5"));
    assert_eq!(harness.desired_version("web5"), "v2");
}

#[test]
fn late_node_of_a_passed_stage_moves_last() {
    let mut ordered = crate::testing::request("v2", percents(&[100]));
    ordered.after = crate::testing::after(&[("web", "db")]);
    let mut harness =
        RolloutHarness::with_request(FakeFleet::with_roles(&[("web", 2, "a b"), ("db", 1, "a")]), &ordered);
    harness.settle();
    let web = harness.validate("db1");
    harness.world.node("db2", "db", "b", &[]);
    harness.world.answers("db2", RunEnd::Validated);
    assert_eq!(harness.settle(), ["db2"], "its own role has a slot");
    assert_eq!(web.len(), 1);
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
}

#[test]
fn leaving_node_blocks_nothing() {
    for leave in [FakeFleet::leaves, FakeFleet::remove] {
        let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), budget(1, None));
        let granted = harness.settle();
        leave(&mut harness.world, &granted[0]);
        assert_eq!(harness.settle().len(), 1, "its slot is free");
        assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
    }
}

#[test]
fn node_that_left_meanwhile_is_not_granted() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), budget(1, None));
    let change = harness.decide().change.unwrap();
    let txn = change.txn(&harness.world.fleet, harness.stored_record().1).unwrap();
    harness.world.leaves(change.grants[0].node.as_str());
    let guard = harness.world.commit(&txn).unwrap_err();
    assert_eq!(guard.key(), harness.world.keys.node(&change.grants[0].node));
}

#[test]
fn unprovisioned_node_starts_with_the_target() {
    let mut world = FakeFleet::with_roles(&[("web", 2, "a b")]);
    world.node("web3", "web", "a", &[]);
    world.unmade("web3");
    let mut harness = RolloutHarness::start(world, budget(1, None));
    assert_eq!(harness.settle().len(), 1, "it uses no budget");
    assert_eq!(harness.desired_version("web3"), "v1");
    let granted = harness.granted.clone();
    let next = harness.validate(&granted[0]);
    harness.validate(&next[0]);
    assert_eq!(harness.phase(), RolloutPhase::Completed);
    assert_eq!(harness.desired_version("web3"), "v2");
}

#[test]
fn disconnected_node_fails_after_its_deadline() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 3, "a b c")]), budget(2, None));
    harness.world.silent("web1", seconds(0));
    let away_since = harness.world.now;
    while let Some(name) =
        harness.late_nodes().first().map(ToString::to_string).or_else(|| harness.settle().first().cloned())
    {
        harness.validate(&name);
    }
    assert_eq!(harness.decide().recheck, Some(away_since + minutes(30)));
    harness.advance(minutes(30));
    let phase = harness.phase();
    let RolloutPhase::Paused { why: PauseReason::Failures { nodes, .. } } = phase else { panic!("{phase:?}") };
    assert_eq!(nodes[0].how, FailureKind::Unreachable);
    // After the resume it is moved when it is back.
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    harness.settle();
    assert_eq!(harness.phase(), RolloutPhase::Completed);
    assert_eq!(harness.desired_version("web1"), "v2");
}

#[test]
fn earlier_disconnected_node_does_not_fail_the_rollout() {
    let mut world = FakeFleet::with_roles(&[("web", 3, "a b c")]);
    world.silent("web1", minutes(5));
    let mut harness = RolloutHarness::start(world, budget(2, None));
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
    assert_eq!(harness.granted.len(), 2);
}

#[test]
fn failed_repair_uses_budget_and_is_no_failure() {
    let mut world = FakeFleet::with_roles(&[("web", 3, "a b c")]);
    world.answers("web2", failed());
    let mut harness = RolloutHarness::start(world, budget(2, None));
    let granted = harness.settle();
    assert_eq!((granted[0].as_str(), granted.len()), ("web2", 2), "the repair first, and another node");
    assert_eq!(harness.report("web2", failed()), NO_NODES);
    assert_eq!(harness.phase(), RolloutPhase::Running);
    assert_eq!(harness.validate(&granted[1]).len(), 1);
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
}

#[test]
fn skipped_node_keeps_its_version() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 3, "a b c")]), budget(1, None));
    let generation =
        |harness: &RolloutHarness, name: &str| harness.world.fleet.desired_of(&node(name)).unwrap().generation;
    let last = harness.plan.plan().nodes().last().unwrap().node.clone();
    let before = generation(&harness, last.as_str());
    assert!(harness.command(&RolloutCommand::Skip { node: last.clone() }).unwrap());
    assert!(!harness.command(&RolloutCommand::Skip { node: last.clone() }).unwrap());
    let first = harness.settle();
    harness.report(&first[0], failed());
    assert!(harness.command(&RolloutCommand::Skip { node: node(&first[0]) }).unwrap(), "a granted node can be skipped");
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    assert_eq!(harness.settle(), Vec::<String>::new(), "it is unavailable and uses the budget");
    assert!(harness.command(&RolloutCommand::Release { node: node(&first[0]) }).unwrap());
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
    assert_eq!((harness.desired_version(last.as_str()).as_str(), generation(&harness, last.as_str())), ("v1", before));
    assert_eq!(harness.desired_version(&first[0]), "v2");
    assert_eq!(harness.granted.len(), 2);
}

#[test]
fn unknown_node_is_refused_with_a_suggestion() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 3, "a b c")]), budget(1, None));
    let refused = harness.command(&RolloutCommand::Skip { node: node("wbe1") }).unwrap_err();
    assert_eq!(refused.to_string(), "there is no node wbe1 in the design; did you mean web1?");
    let refused =
        harness.command(&RolloutCommand::Retry(crate::command::RetryTarget::Nodes(vec![node("web1")]))).unwrap_err();
    assert!(matches!(refused, CommandRefused::NotFailed { .. }), "{refused}");
}

#[test]
fn node_that_rolled_itself_back_has_failed() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), budget(1, None));
    let granted = harness.settle();
    harness.world.ends(&granted[0], "v1", RunEnd::Validated);
    harness.settle();
    assert_eq!(harness.phase(), RolloutPhase::Running, "a validation of the previous version is no answer");
    harness.world.rolled_itself_back(&granted[0], "v2", "v1");
    harness.settle();
    let phase = harness.phase();
    let RolloutPhase::Paused { why: PauseReason::Failures { nodes, .. } } = phase else { panic!("{phase:?}") };
    assert_eq!(nodes[0].how, FailureKind::RolledBack);
}
