//! What holds between a decision and its transaction.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use muster_core::names::NodeName;
use muster_core::rollout::record::{GateVerdict, WaveState};
use muster_core::rollout::strategy::{Amount, Strategy};
use muster_rollout::operate::{Command, operate};
use muster_rollout::plan::plan;
use muster_rollout::start::start;
use muster_rollout::testing::{World, request};
use muster_store::limits::MAX_VALUE;

use super::*;

/// A rollout that has begun.
fn begun() -> World {
    let mut world = World::of(&[("web", 3, "a b")]);
    world.release("v2", 2);
    let request = request("v2", Strategy::one_wave(Amount::Nodes(1)));
    let plan = world.see(|sight| plan(sight, &request)).unwrap();
    let who = Starting { request: "one".into(), by: "ada".into(), supersede: false };
    let started = world.see(|sight| start(sight, &plan, "sha256:0", who)).unwrap();
    world.commit(&started.txn.unwrap()).unwrap();
    world
}

fn decided(world: &World) -> DecidedOn {
    let (record, at) = world.fleet.deciding_rollout().unwrap();
    DecidedOn { id: record.id, at }
}

fn say(world: &mut World, command: &Command) {
    let (record, at) = world.fleet.deciding_rollout().unwrap();
    let operated = world.see(|sight| operate(record, command, "ada", sight)).unwrap().unwrap();
    let txn = operated.txn(&world.fleet, at).unwrap();
    world.commit(&txn).unwrap();
}

#[test]
fn what_an_operator_has_said_since_a_decision_ends_it() {
    let words = [Command::Pause { reason: String::new() }, Command::Abort { reason: String::new() }];
    for word in words {
        let mut world = begun();
        let on = decided(&world);
        assert!(on.still(&world.fleet).is_some());
        say(&mut world, &word);
        assert!(on.still(&world.fleet).is_none(), "{word:?}");
        assert!(decided(&world).still(&world.fleet).is_none(), "also for whoever sees it, it does not go on");
    }
    let mut world = begun();
    let on = decided(&world);
    say(&mut world, &Command::Pause { reason: String::new() });
    say(&mut world, &Command::Resume);
    assert!(on.still(&world.fleet).is_none(), "it goes on, but not as it was decided on");
    assert!(decided(&world).still(&world.fleet).is_some());
}

#[test]
fn what_moves_something_is_told_from_what_is_only_noted() {
    let world = begun();
    let (record, at) = world.fleet.deciding_rollout().unwrap();
    let moves = |change: Change| {
        let txn = change.txn(&world.fleet, at).unwrap();
        Write { txn, change, before: record.clone(), at }.moves_something()
    };
    let with = |then: fn(&mut RolloutRecord)| {
        let mut record = record.clone();
        then(&mut record);
        moves(Change { record, grants: Vec::new(), completes: false })
    };
    assert!(!with(|record| record.healthy = 2));
    assert!(!with(|record| record.waves[0].settled = Some(record.started)));
    assert!(!moves(world.see(|sight| paused(record.clone(), Halt::Blocked { problem: "it".into() }, sight))));
    assert!(with(|record| record.waves[0].gate = Some(GateVerdict::Passed { at: record.started })));
    assert!(with(|record| record.waves[0].passed = Some(record.started)));
    assert!(with(|record| record.waves.push(WaveState::begun(record.started))));
    assert!(moves(Change { record: record.clone(), grants: Vec::new(), completes: true }));
}

#[test]
fn a_record_that_is_too_large_is_cut_until_its_pause_fits() {
    let world = begun();
    let (record, _) = world.fleet.deciding_rollout().unwrap();
    let names = |from: usize, to: usize| (from..to).map(|n| NodeName::new(format!("some-long-name-{n:04}")).unwrap());
    let mut full = record.clone();
    full.skipped = names(0, 200).collect();
    full.released = names(200, 400).collect();
    full.retry = names(400, 1000).collect();
    assert!(serde_json::to_vec(&full).unwrap().len() > MAX_VALUE);
    outgrown::fit(&mut full);
    assert!(serde_json::to_vec(&full).unwrap().len() <= MAX_VALUE);
    assert_eq!((full.skipped.len(), full.released.len(), full.retry.len()), (200, 200, 0), "no more than needed");
    let mut small = record.clone();
    outgrown::fit(&mut small);
    assert_eq!(&small, record);
    let told = outgrown::problem(&Invalid::BigValue { key: "k".into(), len: 20_000 });
    assert!(told.contains("muster rollout abort"), "{told}");
}
