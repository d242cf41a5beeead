//! Rollouts from start to end: they supersede each other, roll back, and are deleted.

use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{OnFailure, Strategy};

use crate::command::{CommandRefused, RolloutCommand};
use crate::plan::plan;
use crate::start::{MAX_RECORDS, StartOptions, StartRefused, check_supersede, roll_back, stable_version, start};
use crate::step::IndexedPlan;
use crate::testing::{FakeFleet, RunEnd, request, version};

use super::RolloutHarness;
use super::harness::{budget, failed, percents};

fn options(request: &str, supersede: bool) -> StartOptions {
    StartOptions { request: request.into(), by: "ann".into(), supersede }
}

/// An environment whose nodes were moved to v1 by a rollout.
fn settled(nodes: u32) -> FakeFleet {
    let mut world = FakeFleet::new();
    for number in 1..=nodes {
        world.node(&format!("web{number}"), "web", "a", &[]);
    }
    let mut harness = RolloutHarness::with_request(world, &request("v1", budget(1, None)));
    assert!(harness.record().at_once, "no version was deployed before");
    harness.settle();
    assert_eq!(harness.granted.len(), 0);
    assert_eq!(harness.phase(), RolloutPhase::Running, "no node has reported");
    for number in 1..=nodes {
        harness.report(&format!("web{number}"), RunEnd::Validated);
    }
    assert_eq!(harness.phase(), RolloutPhase::Completed);
    assert_eq!(stable_version(&harness.world.fleet, RolloutId(99)), Some(version("v1")));
    harness.world
}

#[test]
fn first_version_is_a_rollback_target() {
    settled(3);
}

#[test]
fn repeated_request_is_the_same_rollout() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), budget(1, None));
    let request_of = harness.record().request;
    let made = harness.plan.plan().clone();
    let again =
        harness.world.with_input(|input| start(input, &made, "sha256:plan", options(&request_of, false))).unwrap();
    assert_eq!((again.id, again.txn), (harness.id, None));
    let other =
        harness.world.with_input(|input| start(input, &made, "sha256:plan", options("other", false))).unwrap_err();
    assert!(matches!(other, StartRefused::Open { id, .. } if id == harness.id), "{other}");
    harness.settle();
}

#[test]
fn refused_start_names_the_open_rollouts_progress() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 4, "a b")]), budget(2, None));
    let refused = |harness: &RolloutHarness| check_supersede(&harness.world.fleet, false).unwrap_err().to_string();
    assert!(refused(&harness).starts_with("rollout 1 to v2 is running: it has started no node yet; end it"));
    let sent = harness.settle();
    assert!(refused(&harness).contains("it has started 2 nodes, of which 0 are validated;"), "{}", refused(&harness));
    // No step has run since.
    harness.world.answers(&sent[0], RunEnd::Validated);
    assert_eq!(harness.record().steps.healthy, 0);
    assert!(refused(&harness).contains("it has started 2 nodes, of which 1 is validated;"), "{}", refused(&harness));
}

#[test]
fn one_of_two_concurrent_starts_commits() {
    let mut world = FakeFleet::with_roles(&[("web", 2, "a b")]);
    let made = world.with_input(|input| plan(input, &request("v2", budget(1, None)))).unwrap();
    let txn = |request| {
        world.with_input(|input| start(input, &made, "sha256:plan", options(request, false))).unwrap().txn.unwrap()
    };
    let (one, other) = (txn("one"), txn("other"));
    assert!(world.commit(&one).is_ok());
    assert!(world.commit(&other).is_err());
}

#[test]
fn superseding_rollout_moves_nodes_directly() {
    let mut harness = RolloutHarness::start(settled(4), budget(1, None));
    let first = harness.settle();
    harness.validate(&first[0]);
    let generation = harness.world.fleet.base().unwrap().generation;
    let made = harness.world.with_input(|input| plan(input, &request("v3", budget(1, None)))).unwrap();
    let started =
        harness.world.with_input(|input| start(input, &made, "sha256:plan3", options("newer", true))).unwrap();
    // The earlier decision does not commit any more.
    let late = harness.command(&RolloutCommand::Pause { reason: String::new() });
    assert!(late.is_ok());
    assert!(harness.world.commit(started.txn.as_ref().unwrap()).is_err(), "the pause came first");
    let started =
        harness.world.with_input(|input| start(input, &made, "sha256:plan3", options("newer", true))).unwrap();
    harness.world.commit(&started.txn.unwrap()).unwrap();
    assert_eq!(harness.phase(), RolloutPhase::Superseded { by: started.id });
    assert_eq!(
        harness.world.fleet.base().unwrap().generation,
        generation,
        "nodes without a grant keep their generation"
    );
    let old = harness.id;
    harness.id = started.id;
    harness.plan = IndexedPlan::new(made);
    harness.granted.clear();
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
    assert_eq!(harness.granted.len(), 4);
    assert!(old < harness.id);
}

#[test]
fn automatic_rollback_moves_granted_nodes_once() {
    let strategy = Strategy { on_failure: OnFailure::Rollback, ..budget(2, None) };
    let mut harness = RolloutHarness::start(settled(5), strategy.clone());
    let granted = harness.settle();
    harness.world.answers(&granted[0], failed());
    let step = harness.decide();
    let why = step.roll_back.unwrap();
    assert!(step.change.is_none());
    let to = stable_version(&harness.world.fleet, harness.id).unwrap();
    let mut back = request(to.as_str(), strategy);
    back.rolls_back = Some(harness.id);
    back.allow_older = true;
    let made = harness.world.with_input(|input| plan(input, &back)).unwrap();
    let started = harness.world.with_input(|input| start(input, &made, "sha256:back", options("start", true)));
    assert!(
        matches!(started, Err(StartRefused::RollbackPlan { id }) if id == harness.id),
        "a rollback plan is started only as a rollback"
    );
    let (old, at) = harness.stored_record();
    let twice: Vec<_> = ["a", "b"]
        .map(|name| {
            harness
                .world
                .with_input(|input| roll_back(input, &made, "sha256:back", options(name, false), (&old, at), &why))
        })
        .into_iter()
        .map(|started| started.unwrap())
        .collect();
    harness.world.commit(twice[0].txn.as_ref().unwrap()).unwrap();
    assert!(harness.world.commit(twice[1].txn.as_ref().unwrap()).is_err());
    assert!(matches!(harness.phase(), RolloutPhase::RolledBack { by, .. } if by == twice[0].id));
    let (old, at) = harness.stored_record();
    let again =
        harness.world.with_input(|input| roll_back(input, &made, "sha256:back", options("c", false), (&old, at), &why));
    assert!(matches!(again, Err(StartRefused::AlreadyRolledBack { .. })));

    harness.id = twice[0].id;
    harness.plan = IndexedPlan::new(made);
    harness.granted.clear();
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
    harness.granted.sort();
    let mut moved = granted;
    moved.sort();
    assert_eq!(harness.granted, moved);
    assert!(harness.late_nodes().is_empty(), "its end starts no run");
    assert_eq!(harness.world.fleet.current_version().unwrap().0, &version("v1"));
}

#[test]
fn pause_overrides_earlier_decisions() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 3, "a b c")]), budget(2, None));
    let (change, at) = (harness.decide().change.unwrap(), harness.stored_record().1);
    let decided = change.txn(&harness.world.fleet, at).unwrap();
    assert!(harness.command(&RolloutCommand::Pause { reason: "lunch".into() }).unwrap());
    assert!(!harness.command(&RolloutCommand::Pause { reason: "again".into() }).unwrap());
    let guard = harness.world.commit(&decided).unwrap_err();
    assert_eq!(guard.key(), harness.world.keys.rollout(harness.id));
    assert_eq!(harness.decide(), crate::step::Step::default());
    assert_eq!(harness.phase(), RolloutPhase::Paused { why: PauseReason::by_operator("bob", "lunch") });
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    assert!(!harness.command(&RolloutCommand::Resume).unwrap());
    assert_eq!(harness.settle().len(), 2);
    assert!(harness.command(&RolloutCommand::Abort { reason: String::new() }).unwrap());
    assert!(!harness.command(&RolloutCommand::Abort { reason: String::new() }).unwrap());
    let refused = harness.command(&RolloutCommand::Resume).unwrap_err();
    assert!(matches!(refused, CommandRefused::RolloutEnded { .. }));
    let waits = harness.plan.plan().nodes().last().unwrap().node.to_string();
    assert_eq!(harness.desired_version(&waits), "v1", "a waiting node keeps its version");
}

#[test]
fn failure_during_a_pause_counts_after_it() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 3, "a b c")]), budget(1, None));
    let granted = harness.settle();
    harness.command(&RolloutCommand::Pause { reason: String::new() }).unwrap();
    harness.report(&granted[0], failed());
    harness.command(&RolloutCommand::Resume).unwrap();
    harness.settle();
    assert!(matches!(harness.phase(), RolloutPhase::Paused { why: PauseReason::Failures { .. } }));
}

#[test]
fn destroyed_or_restored_environment_starts_nothing() {
    let mut world = FakeFleet::with_roles(&[("web", 2, "a b")]);
    let made = world.with_input(|input| plan(input, &request("v2", budget(1, None)))).unwrap();
    world.put(world.keys.destroying(), "{}");
    let refused = world.with_input(|input| start(input, &made, "sha256:plan", options("one", false)));
    assert!(matches!(refused, Err(StartRefused::Destroying)));
    world.delete(world.keys.destroying());
    let decided =
        world.with_input(|input| start(input, &made, "sha256:plan", options("one", false))).unwrap().txn.unwrap();
    world.put(world.keys.restoring(), "{}");
    assert!(world.commit(&decided).is_err());
}

#[test]
fn fifty_records_and_rollback_targets_are_kept() {
    let mut world = settled(1);
    for number in 0..MAX_RECORDS + 5 {
        let made = world.with_input(|input| plan(input, &request("v2", budget(1, None)))).unwrap();
        let name = format!("number {number}");
        let started = world.with_input(|input| start(input, &made, &name, options(&name, true))).unwrap();
        world.commit(&started.txn.unwrap()).unwrap();
    }
    assert_eq!(world.fleet.rollouts().len(), MAX_RECORDS);
    assert_eq!(stable_version(&world.fleet, RolloutId(56)), Some(version("v1")));

    // One node has moved, so later records do not prove v1.
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), budget(1, None));
    let first = harness.settle();
    harness.validate(&first[0]);
    let mut world = harness.world;
    for number in 0..MAX_RECORDS + 5 {
        let made = world.with_input(|input| plan(input, &request("v3", budget(1, None)))).unwrap();
        let name = format!("number {number}");
        let started = world.with_input(|input| start(input, &made, &name, options(&name, true))).unwrap();
        world.commit(&started.txn.unwrap()).unwrap();
    }
    assert_eq!(world.fleet.rollouts().len(), MAX_RECORDS + 1);
    assert_eq!(stable_version(&world.fleet, RolloutId(56)), Some(version("v1")));
}

#[test]
fn version_of_all_nodes_is_a_rollback_target() {
    // Chosen without a rollout, as the first version of a project.
    let proved = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), budget(1, None));
    assert!(proved.record().from_validated);
    assert_eq!(stable_version(&proved.world.fleet, proved.id), Some(version("v1")));

    let mut world = FakeFleet::with_roles(&[("web", 2, "a b")]);
    world.answers("web2", failed());
    let broken = RolloutHarness::start(world, budget(1, None));
    assert_eq!(stable_version(&broken.world.fleet, broken.id), None);
}

#[test]
fn aborted_rollouts_keep_the_rollback_target() {
    // v1 came without a rollout.
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 4, "a b")]), budget(1, None));
    for to in ["v3", "v4"] {
        let moved = harness.settle();
        harness.validate(&moved[0]);
        harness.command(&RolloutCommand::Abort { reason: String::new() }).unwrap();
        harness = RolloutHarness::with_request(harness.world, &request(to, budget(1, None)));
        assert!(!harness.record().from_validated, "the nodes run different versions");
        assert_eq!(stable_version(&harness.world.fleet, harness.id), Some(version("v1")));
    }
    let moved = harness.settle();
    harness.validate(&moved[0]);
    let mut back = request("v1", budget(1, None));
    (back.rolls_back, back.allow_older) = (Some(harness.id), true);
    let made = harness.world.with_input(|input| plan(input, &back)).unwrap();
    let (old, at) = harness.stored_record();
    let why = PauseReason::by_operator("ann", "");
    let started = harness
        .world
        .with_input(|input| roll_back(input, &made, "sha256:back", options("a", false), (&old, at), &why))
        .unwrap();
    harness.world.commit(&started.txn.unwrap()).unwrap();
    (harness.id, harness.plan) = (started.id, IndexedPlan::new(made));
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
    assert_eq!(harness.desired_version(&moved[0]), "v1");
}

#[test]
fn version_left_by_a_rollback_is_no_rollback_target() {
    let mut harness = RolloutHarness::start(settled(3), budget(1, None));
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
    let mut back = request("v1", budget(1, None));
    (back.rolls_back, back.allow_older) = (Some(harness.id), true);
    let made = harness.world.with_input(|input| plan(input, &back)).unwrap();
    let (old, at) = harness.stored_record();
    let why = PauseReason::by_operator("ann", "");
    let started = harness
        .world
        .with_input(|input| roll_back(input, &made, "sha256:back", options("a", false), (&old, at), &why))
        .unwrap();
    harness.world.commit(&started.txn.unwrap()).unwrap();
    (harness.id, harness.plan) = (started.id, IndexedPlan::new(made));
    assert!(harness.record().from_validated, "all nodes ran v2");
    assert_eq!(stable_version(&harness.world.fleet, harness.id), Some(version("v2")), "the rollback can be undone");
    let moved = harness.settle();
    harness.validate(&moved[0]);
    harness.command(&RolloutCommand::Abort { reason: String::new() }).unwrap();
    let next = RolloutHarness::with_request(harness.world, &request("v3", budget(1, None)));
    assert_eq!(stable_version(&next.world.fleet, next.id), Some(version("v1")));
}

#[test]
fn incomplete_rollout_is_no_rollback_target() {
    let mut harness = RolloutHarness::start(settled(3), budget(1, None));
    let aside = harness.plan.plan().nodes().last().unwrap().node.clone();
    harness.command(&RolloutCommand::Skip { node: aside.clone() }).unwrap();
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
    assert!(!harness.record().all_nodes_at_target);
    assert_eq!(stable_version(&harness.world.fleet, RolloutId(99)), Some(version("v1")));
}

#[test]
fn rollback_keeps_skipped_nodes_and_reports_failures() {
    let mut harness = RolloutHarness::start(settled(3), budget(3, None));
    let granted = harness.settle();
    harness.command(&RolloutCommand::Skip { node: crate::testing::node(&granted[0]) }).unwrap();
    harness.validate(&granted[1]);
    let mut back = request("v1", budget(3, None));
    (back.rolls_back, back.allow_older) = (Some(harness.id), true);
    let made = harness.world.with_input(|input| plan(input, &back)).unwrap();
    assert_eq!((made.node_count(), made.already.len()), (2, 1));
    let (old, at) = harness.stored_record();
    let why = PauseReason::Operator { by: "ann".into(), reason: String::new(), over: None };
    let started = harness
        .world
        .with_input(|input| roll_back(input, &made, "sha256:back", options("a", false), (&old, at), &why))
        .unwrap();
    harness.world.commit(&started.txn.unwrap()).unwrap();
    (harness.id, harness.plan) = (started.id, IndexedPlan::new(made));
    harness.granted.clear();
    assert_eq!(harness.settle().len(), 2);
    harness.report(&granted[1], failed());
    assert_eq!(harness.phase(), RolloutPhase::Running, "it does not block the other node");
    harness.validate(&granted[2]);
    let RolloutPhase::Paused { why } = harness.phase() else { panic!("{:?}", harness.phase()) };
    assert!(why.is_failure() && why.to_string().starts_with("1 node has failed to roll back; "), "{why}");
    assert_eq!(harness.desired_version(&granted[0]), "v2", "an operator skipped it");
    harness.command(&RolloutCommand::Retry(crate::command::RetryTarget::AllFailed)).unwrap();
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
    assert!(!harness.record().all_nodes_at_target, "one node has another version");
    assert_eq!(harness.desired_version(&granted[0]), "v2");
}

#[test]
fn rollout_without_healthy_node_does_not_complete() {
    let mut world = FakeFleet::with_roles(&[("web", 1, "a")]);
    world.answers("web1", failed());
    let mut harness = RolloutHarness::start(world, budget(1, None));
    harness.settle();
    harness.report("web1", failed());
    let RolloutPhase::Paused { why } = harness.phase() else { panic!("{:?}", harness.phase()) };
    assert!(why.to_string().starts_with("1 node has failed, and no node is healthy"), "{why}");
}

#[test]
fn at_once_rollout_completes_and_can_be_replaced() {
    let mut world = FakeFleet::new();
    for name in ["web1", "web2", "web3", "web4"] {
        world.node(name, "web", "a", &[]);
    }
    world.unmade("web4");
    let mut harness = RolloutHarness::with_request(world, &request("v1", Strategy::default()));
    harness.validate("web1");
    harness.report("web2", failed());
    let deadlines = Strategy::default().deadlines;
    assert_eq!(harness.decide().recheck, Some(harness.world.now + deadlines.node), "web3 has not reported");
    harness.advance(deadlines.node);
    assert_eq!(harness.phase(), RolloutPhase::Running, "agents retry");
    harness.advance(deadlines.progress - deadlines.node);
    let RolloutPhase::Paused { why: PauseReason::Failures { failed: 2, .. } } = harness.phase() else {
        panic!("{:?}", harness.phase())
    };
    let made = harness.world.with_input(|input| plan(input, &request("v2", budget(1, None)))).unwrap();
    let started = harness.world.with_input(|input| start(input, &made, "sha256:next", options("next", false))).unwrap();
    harness.command(&RolloutCommand::Resume).unwrap();
    harness.validate("web2");
    harness.validate("web3");
    assert_eq!(harness.phase(), RolloutPhase::Completed);
    assert!(harness.record().all_nodes_at_target, "a node without a machine does not count");
    assert!(harness.world.commit(&started.txn.unwrap()).is_err(), "the stale decision is refused");
}

#[test]
fn resumed_rollout_without_validation_pauses_again() {
    let mut world = FakeFleet::new();
    ["web1", "web2"].iter().for_each(|name| world.node(name, "web", "a", &[]));
    let mut harness = RolloutHarness::with_request(world, &request("v1", Strategy::default()));
    harness.report("web1", failed());
    harness.report("web2", failed());
    let disconnect_grace = Strategy::default().deadlines.progress;
    harness.advance(disconnect_grace);
    assert!(
        matches!(harness.phase(), RolloutPhase::Paused { why: PauseReason::Failures { failed: 2, .. } }),
        "{:?}",
        harness.phase()
    );
    harness.command(&RolloutCommand::Resume).unwrap();
    harness.settle();
    assert_eq!(harness.phase(), RolloutPhase::Running, "agents retry");
    assert_eq!(harness.decide().recheck, Some(harness.world.now + disconnect_grace));
    harness.advance(disconnect_grace);
    let RolloutPhase::Paused { why } = harness.phase() else { panic!("{:?}", harness.phase()) };
    assert!(why.to_string().starts_with("2 nodes have failed, and no node is healthy"), "{why}");
}

#[test]
fn nodes_move_one_by_one_until_complete() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 3, "a b")]), budget(1, None));
    let first = harness.settle();
    assert_eq!(first.len(), 1);
    assert_eq!(harness.settle(), Vec::<String>::new(), "its slot is taken");
    let second = harness.validate(&first[0]);
    assert_eq!(second.len(), 1);
    let third = harness.validate(&second[0]);
    assert_eq!(harness.phase(), RolloutPhase::Running);
    assert_eq!(harness.validate(&third[0]), Vec::<String>::new());
    assert_eq!(harness.phase(), RolloutPhase::Completed);
    let planned: Vec<String> = harness.plan.plan().nodes().map(|planned| planned.node.to_string()).collect();
    assert_eq!(harness.granted, planned, "nodes are granted in the order of the plan");
    assert!(harness.world.fleet.active_rollout_pointer().unwrap().0.completed);
    assert_eq!(harness.decide(), crate::step::Step::default(), "the rollout has ended");
}

#[test]
fn wave_ends_before_the_next_starts() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 4, "a b")]), percents(&[25, 100]));
    let first = harness.settle();
    assert_eq!((first.len(), harness.record().waves.len()), (1, 1));
    let second = harness.validate(&first[0]);
    assert_eq!((second.len(), harness.record().waves.len()), (1, 2));
    assert_eq!(harness.run_to_end(), RolloutPhase::Completed);
    assert_eq!(harness.granted.len(), 4);
}
