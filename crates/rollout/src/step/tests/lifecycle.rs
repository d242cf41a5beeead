//! Rollouts from start to end: they supersede each other, roll back, and are deleted.

use muster_core::rollout::RolloutId;
use muster_core::rollout::record::{PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{OnFailure, Strategy};

use crate::command::{CommandRefused, RolloutCommand};
use crate::plan::plan;
use crate::start::{MAX_RECORDS, StartOptions, StartRefused, check_supersede, roll_back, stable_version, start};
use crate::step::IndexedPlan;
use crate::testing::{FakeFleet, RunEnd, request, version};

use super::Ride;
use super::ride::{budget, failed, percents};

fn asks(request: &str, supersede: bool) -> StartOptions {
    StartOptions { request: request.into(), by: "ann".into(), supersede }
}

/// An environment whose nodes were moved to v1 by a rollout.
fn settled(nodes: u32) -> FakeFleet {
    let mut world = FakeFleet::new();
    for number in 1..=nodes {
        world.node(&format!("web{number}"), "web", "a", &[]);
    }
    let mut ride = Ride::of(world, &request("v1", budget(1, None)));
    assert!(ride.record().at_once, "nothing ran before");
    ride.go();
    assert_eq!(ride.granted.len(), 0);
    assert_eq!(ride.phase(), RolloutPhase::Running, "nobody has answered");
    for number in 1..=nodes {
        ride.answers(&format!("web{number}"), RunEnd::Validated);
    }
    assert_eq!(ride.phase(), RolloutPhase::Completed);
    assert_eq!(stable_version(&ride.world.fleet, RolloutId(99)), Some(version("v1")));
    ride.world
}

#[test]
fn first_version_is_a_rollback_target() {
    settled(3);
}

#[test]
fn repeated_request_is_the_same_rollout() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), budget(1, None));
    let request_of = ride.record().request;
    let made = ride.plan.plan().clone();
    let again = ride.world.with_input(|input| start(input, &made, "sha256:plan", asks(&request_of, false))).unwrap();
    assert_eq!((again.id, again.txn), (ride.id, None));
    let other = ride.world.with_input(|input| start(input, &made, "sha256:plan", asks("other", false))).unwrap_err();
    assert!(matches!(other, StartRefused::Open { id, .. } if id == ride.id), "{other}");
    ride.go();
}

#[test]
fn refused_start_names_the_open_rollouts_progress() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 4, "a b")]), budget(2, None));
    let refused = |ride: &Ride| check_supersede(&ride.world.fleet, false).unwrap_err().to_string();
    assert!(refused(&ride).starts_with("rollout 1 to v2 is running: it has granted no node yet; end it"));
    let sent = ride.go();
    assert!(refused(&ride).contains("it has granted 2 nodes, of which 0 are validated;"), "{}", refused(&ride));
    // No step has run since.
    ride.world.answers(&sent[0], RunEnd::Validated);
    assert_eq!(ride.record().steps.healthy, 0);
    assert!(refused(&ride).contains("it has granted 2 nodes, of which 1 is validated;"), "{}", refused(&ride));
}

#[test]
fn one_of_two_concurrent_starts_commits() {
    let mut world = FakeFleet::of(&[("web", 2, "a b")]);
    let made = world.with_input(|input| plan(input, &request("v2", budget(1, None)))).unwrap();
    let txn = |request| {
        world.with_input(|input| start(input, &made, "sha256:plan", asks(request, false))).unwrap().txn.unwrap()
    };
    let (one, other) = (txn("one"), txn("other"));
    assert!(world.commit(&one).is_ok());
    assert!(world.commit(&other).is_err());
}

#[test]
fn superseding_rollout_moves_nodes_directly() {
    let mut ride = Ride::begin(settled(4), budget(1, None));
    let first = ride.go();
    ride.well(&first[0]);
    let generation = ride.world.fleet.base().unwrap().generation;
    let made = ride.world.with_input(|input| plan(input, &request("v3", budget(1, None)))).unwrap();
    let started = ride.world.with_input(|input| start(input, &made, "sha256:plan3", asks("newer", true))).unwrap();
    // The earlier decision does not commit any more.
    let late = ride.say(&RolloutCommand::Pause { reason: String::new() });
    assert!(late.is_ok());
    assert!(ride.world.commit(started.txn.as_ref().unwrap()).is_err(), "the pause came first");
    let started = ride.world.with_input(|input| start(input, &made, "sha256:plan3", asks("newer", true))).unwrap();
    ride.world.commit(&started.txn.unwrap()).unwrap();
    assert_eq!(ride.phase(), RolloutPhase::Superseded { by: started.id });
    assert_eq!(ride.world.fleet.base().unwrap().generation, generation, "who was not granted is told nothing");
    let old = ride.id;
    ride.id = started.id;
    ride.plan = IndexedPlan::new(made);
    ride.granted.clear();
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    assert_eq!(ride.granted.len(), 4);
    assert!(old < ride.id);
}

#[test]
fn automatic_rollback_moves_granted_nodes_once() {
    let strategy = Strategy { on_failure: OnFailure::Rollback, ..budget(2, None) };
    let mut ride = Ride::begin(settled(5), strategy.clone());
    let granted = ride.go();
    ride.world.answers(&granted[0], failed());
    let step = ride.look();
    let why = step.roll_back.unwrap();
    assert!(step.change.is_none());
    let to = stable_version(&ride.world.fleet, ride.id).unwrap();
    let mut back = request(to.as_str(), strategy);
    back.rolls_back = Some(ride.id);
    back.allow_older = true;
    let made = ride.world.with_input(|input| plan(input, &back)).unwrap();
    let started = ride.world.with_input(|input| start(input, &made, "sha256:back", asks("start", true)));
    assert!(matches!(started, Err(StartRefused::RollbackPlan { id }) if id == ride.id), "only as what it is");
    let (old, at) = ride.held();
    let twice: Vec<_> = ["a", "b"]
        .map(|name| {
            ride.world.with_input(|input| roll_back(input, &made, "sha256:back", asks(name, false), (&old, at), &why))
        })
        .into_iter()
        .map(|started| started.unwrap())
        .collect();
    ride.world.commit(twice[0].txn.as_ref().unwrap()).unwrap();
    assert!(ride.world.commit(twice[1].txn.as_ref().unwrap()).is_err());
    assert!(matches!(ride.phase(), RolloutPhase::RolledBack { by, .. } if by == twice[0].id));
    let (old, at) = ride.held();
    let again =
        ride.world.with_input(|input| roll_back(input, &made, "sha256:back", asks("c", false), (&old, at), &why));
    assert!(matches!(again, Err(StartRefused::AlreadyRolledBack { .. })));

    ride.id = twice[0].id;
    ride.plan = IndexedPlan::new(made);
    ride.granted.clear();
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    ride.granted.sort();
    let mut moved = granted;
    moved.sort();
    assert_eq!(ride.granted, moved);
    assert!(ride.on_the_way().is_empty(), "its end makes nobody run");
    assert_eq!(ride.world.fleet.current_version().unwrap().0, &version("v1"));
}

#[test]
fn pause_overrides_earlier_decisions() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 3, "a b c")]), budget(2, None));
    let (change, at) = (ride.look().change.unwrap(), ride.held().1);
    let decided = change.txn(&ride.world.fleet, at).unwrap();
    assert!(ride.say(&RolloutCommand::Pause { reason: "lunch".into() }).unwrap());
    assert!(!ride.say(&RolloutCommand::Pause { reason: "again".into() }).unwrap());
    let guard = ride.world.commit(&decided).unwrap_err();
    assert_eq!(guard.key(), ride.world.keys.rollout(ride.id));
    assert_eq!(ride.look(), crate::step::Step::default());
    assert_eq!(ride.phase(), RolloutPhase::Paused { why: PauseReason::by_operator("bob", "lunch") });
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    assert!(!ride.say(&RolloutCommand::Resume).unwrap());
    assert_eq!(ride.go().len(), 2);
    assert!(ride.say(&RolloutCommand::Abort { reason: String::new() }).unwrap());
    assert!(!ride.say(&RolloutCommand::Abort { reason: String::new() }).unwrap());
    let refused = ride.say(&RolloutCommand::Resume).unwrap_err();
    assert!(matches!(refused, CommandRefused::RolloutEnded { .. }));
    let waits = ride.plan.plan().nodes().last().unwrap().node.to_string();
    assert_eq!(ride.version_of(&waits), "v1", "nobody jumps");
}

#[test]
fn failure_during_a_pause_counts_after_it() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 3, "a b c")]), budget(1, None));
    let granted = ride.go();
    ride.say(&RolloutCommand::Pause { reason: String::new() }).unwrap();
    ride.answers(&granted[0], failed());
    ride.say(&RolloutCommand::Resume).unwrap();
    ride.go();
    assert!(matches!(ride.phase(), RolloutPhase::Paused { why: PauseReason::Failures { .. } }));
}

#[test]
fn destroyed_or_restored_environment_starts_nothing() {
    let mut world = FakeFleet::of(&[("web", 2, "a b")]);
    let made = world.with_input(|input| plan(input, &request("v2", budget(1, None)))).unwrap();
    world.put(world.keys.destroying(), "{}");
    let refused = world.with_input(|input| start(input, &made, "sha256:plan", asks("one", false)));
    assert!(matches!(refused, Err(StartRefused::Destroying)));
    world.delete(world.keys.destroying());
    let decided =
        world.with_input(|input| start(input, &made, "sha256:plan", asks("one", false))).unwrap().txn.unwrap();
    world.put(world.keys.restoring(), "{}");
    assert!(world.commit(&decided).is_err());
}

#[test]
fn fifty_records_and_rollback_targets_are_kept() {
    let mut world = settled(1);
    for number in 0..MAX_RECORDS + 5 {
        let made = world.with_input(|input| plan(input, &request("v2", budget(1, None)))).unwrap();
        let name = format!("number {number}");
        let started = world.with_input(|input| start(input, &made, &name, asks(&name, true))).unwrap();
        world.commit(&started.txn.unwrap()).unwrap();
    }
    assert_eq!(world.fleet.rollouts().len(), MAX_RECORDS + 1);
    assert_eq!(stable_version(&world.fleet, RolloutId(56)), Some(version("v1")));
}

#[test]
fn version_of_all_nodes_is_a_rollback_target() {
    // Chosen without a rollout, as the first version of a project.
    let proved = Ride::begin(FakeFleet::of(&[("web", 2, "a b")]), budget(1, None));
    assert!(proved.record().from_proved);
    assert_eq!(stable_version(&proved.world.fleet, proved.id), Some(version("v1")));

    let mut world = FakeFleet::of(&[("web", 2, "a b")]);
    world.answers("web2", failed());
    let broken = Ride::begin(world, budget(1, None));
    assert_eq!(stable_version(&broken.world.fleet, broken.id), None);
}

#[test]
fn incomplete_rollout_is_no_rollback_target() {
    let mut ride = Ride::begin(settled(3), budget(1, None));
    let aside = ride.plan.plan().nodes().last().unwrap().node.clone();
    ride.say(&RolloutCommand::Skip { node: aside.clone() }).unwrap();
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    assert!(!ride.record().whole);
    assert_eq!(stable_version(&ride.world.fleet, RolloutId(99)), Some(version("v1")));
}

#[test]
fn rollback_keeps_skipped_nodes_and_reports_failures() {
    let mut ride = Ride::begin(settled(3), budget(3, None));
    let granted = ride.go();
    ride.say(&RolloutCommand::Skip { node: crate::testing::node(&granted[0]) }).unwrap();
    ride.well(&granted[1]);
    let mut back = request("v1", budget(3, None));
    (back.rolls_back, back.allow_older) = (Some(ride.id), true);
    let made = ride.world.with_input(|input| plan(input, &back)).unwrap();
    assert_eq!((made.node_count(), made.already.len()), (2, 1));
    let (old, at) = ride.held();
    let why = PauseReason::Operator { by: "ann".into(), reason: String::new(), over: None };
    let started = ride
        .world
        .with_input(|input| roll_back(input, &made, "sha256:back", asks("a", false), (&old, at), &why))
        .unwrap();
    ride.world.commit(&started.txn.unwrap()).unwrap();
    (ride.id, ride.plan) = (started.id, IndexedPlan::new(made));
    ride.granted.clear();
    assert_eq!(ride.go().len(), 2);
    ride.answers(&granted[1], failed());
    assert_eq!(ride.phase(), RolloutPhase::Running, "it keeps no other from it");
    ride.well(&granted[2]);
    let RolloutPhase::Paused { why } = ride.phase() else { panic!("{:?}", ride.phase()) };
    assert!(why.is_failure() && why.to_string().starts_with("1 node has failed to roll back; "), "{why}");
    assert_eq!(ride.version_of(&granted[0]), "v2", "somebody wanted it there");
    ride.say(&RolloutCommand::Retry(crate::command::RetryTarget::AllFailed)).unwrap();
    assert_eq!(ride.ride_on(), RolloutPhase::Completed);
    assert!(!ride.record().whole, "one is elsewhere");
    assert_eq!(ride.version_of(&granted[0]), "v2");
}

#[test]
fn rollout_without_healthy_node_does_not_complete() {
    let mut world = FakeFleet::of(&[("web", 1, "a")]);
    world.answers("web1", failed());
    let mut ride = Ride::begin(world, budget(1, None));
    ride.go();
    ride.answers("web1", failed());
    let RolloutPhase::Paused { why } = ride.phase() else { panic!("{:?}", ride.phase()) };
    assert!(why.to_string().starts_with("1 node has failed, and no node is healthy"), "{why}");
}

#[test]
fn at_once_rollout_completes_and_can_be_replaced() {
    let mut world = FakeFleet::new();
    for name in ["web1", "web2", "web3", "web4"] {
        world.node(name, "web", "a", &[]);
    }
    world.unmade("web4");
    let mut ride = Ride::of(world, &request("v1", Strategy::default()));
    ride.well("web1");
    ride.answers("web2", failed());
    let deadlines = Strategy::default().deadlines;
    assert_eq!(ride.look().recheck, Some(ride.world.now + deadlines.node), "web3 has not answered");
    ride.after(deadlines.node);
    assert_eq!(ride.phase(), RolloutPhase::Running, "agents try again by themselves");
    ride.after(deadlines.progress - deadlines.node);
    let RolloutPhase::Paused { why: PauseReason::Failures { failed: 2, .. } } = ride.phase() else {
        panic!("{:?}", ride.phase())
    };
    let made = ride.world.with_input(|input| plan(input, &request("v2", budget(1, None)))).unwrap();
    let started = ride.world.with_input(|input| start(input, &made, "sha256:next", asks("next", false))).unwrap();
    ride.say(&RolloutCommand::Resume).unwrap();
    ride.well("web2");
    ride.well("web3");
    assert_eq!(ride.phase(), RolloutPhase::Completed);
    assert!(ride.record().whole, "a machine that was never made is missed by nobody");
    assert!(ride.world.commit(&started.txn.unwrap()).is_err(), "what was decided before is not carried out");
}

#[test]
fn resumed_rollout_without_validation_pauses_again() {
    let mut world = FakeFleet::new();
    ["web1", "web2"].iter().for_each(|name| world.node(name, "web", "a", &[]));
    let mut ride = Ride::of(world, &request("v1", Strategy::default()));
    ride.answers("web1", failed());
    ride.answers("web2", failed());
    let disconnect_grace = Strategy::default().deadlines.progress;
    ride.after(disconnect_grace);
    assert!(
        matches!(ride.phase(), RolloutPhase::Paused { why: PauseReason::Failures { failed: 2, .. } }),
        "{:?}",
        ride.phase()
    );
    ride.say(&RolloutCommand::Resume).unwrap();
    ride.go();
    assert_eq!(ride.phase(), RolloutPhase::Running, "agents try again by themselves");
    assert_eq!(ride.look().recheck, Some(ride.world.now + disconnect_grace));
    ride.after(disconnect_grace);
    let RolloutPhase::Paused { why } = ride.phase() else { panic!("{:?}", ride.phase()) };
    assert!(why.to_string().starts_with("2 nodes have failed, and no node is healthy"), "{why}");
}

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
    assert_eq!(ride.look(), crate::step::Step::default(), "it is over");
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
