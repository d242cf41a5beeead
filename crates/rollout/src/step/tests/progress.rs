//! Progress of rollouts, and the end of at-once rollouts by the same judgement.

use muster_core::rollout::progress::{Hold, NodeCounts, Progress, RolloutNodeState};
use muster_core::rollout::record::{FailureKind, PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{Deadlines, Promote, Strategy};

use crate::command::{CommandRefused, RolloutCommand};
use crate::progress::{hold_reason, progress};
use crate::testing::{FakeFleet, RunEnd, node, request};

use super::Ride;
use super::ride::{budget, failed, minutes, pending, percents, seconds};

fn begin(nodes: u32) -> Ride {
    let mut world = FakeFleet::new();
    for number in 1..=nodes {
        world.node(&format!("web{number}"), "web", "a", &[]);
    }
    Ride::of(world, &request("v1", Strategy::default()))
}

fn deadlines() -> Deadlines {
    Strategy::default().deadlines
}

fn progress_of(ride: &Ride) -> Progress {
    ride.world.with_input(|input| progress(&ride.plan, &ride.record(), input))
}

fn state(ride: &Ride, name: &str) -> RolloutNodeState {
    let mut nodes = progress_of(ride).waves.into_iter().flat_map(|wave| wave.nodes);
    nodes.find(|progress| progress.node == node(name)).unwrap().state
}

fn why(ride: &Ride, name: &str) -> Option<Hold> {
    ride.world.with_input(|input| hold_reason(&ride.plan, &ride.record(), input, &node(name)))
}

/// Failures that count, by the progress.
fn failures(ride: &Ride) -> usize {
    let nodes = progress_of(ride).waves.into_iter().flat_map(|wave| wave.nodes);
    nodes.filter(|node| matches!(node.state, RolloutNodeState::Failed { forgiven: false, .. })).count()
}

#[test]
fn progress_shows_the_halt_reason() {
    let mut ride = begin(4);
    ride.well("web1");
    ride.answers("web2", failed());
    ride.answers("web4", pending());
    // A node joins, and is waited for too.
    ride.world.node("web5", "web", "a", &[]);
    let until = ride.world.now + deadlines().node;
    let on_its_way = Hold::Node { node: node("web3"), state: RolloutNodeState::Granted, deadline: Some(until) };
    assert_eq!(why(&ride, "web3"), Some(on_its_way.clone()));
    assert!(progress_of(&ride).holds.contains(&on_its_way));
    assert_eq!(why(&ride, "web1"), None);
    ride.after(deadlines().node);
    assert!(matches!(
        state(&ride, "web3"),
        RolloutNodeState::Failed { how: FailureKind::Expired, forgiven: false, .. }
    ));
    assert!(matches!(state(&ride, "web4"), RolloutNodeState::Pending { .. }), "that is no failure");
    ride.after(deadlines().progress - deadlines().node);
    let RolloutPhase::Paused { why: PauseReason::Failures { failed, .. } } = ride.phase() else {
        panic!("{:?}", ride.phase())
    };
    assert_eq!((failed, failures(&ride)), (4, 4));
    ride.world.pass(seconds(1));
    assert_eq!(failures(&ride), 4, "a pause gives nobody time");
    // All have their full time again, and reviewed failures do not count.
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    ride.go();
    assert_eq!((state(&ride, "web3"), failures(&ride)), (RolloutNodeState::Granted, 0));
    assert!(matches!(state(&ride, "web2"), RolloutNodeState::Failed { forgiven: true, .. }));
}

#[test]
fn at_once_without_connected_nodes_pauses() {
    let mut ride = begin(2);
    ride.answers("web1", failed());
    ride.answers("web2", failed());
    ["web1", "web2"].iter().for_each(|name| ride.world.silent(name, seconds(0)));
    ride.after(deadlines().pending);
    let since = ride.world.now - deadlines().pending;
    assert_eq!(ride.phase(), RolloutPhase::Running);
    assert_eq!(why(&ride, "web1"), Some(Hold::Silent { node: node("web1"), since }));
    assert_eq!(progress_of(&ride).holds.len(), 2, "there is nobody else to wait for");
    let again = ride.look().recheck.expect("it does not wait for ever");
    ride.world.now = again;
    ride.go();
    assert_eq!(ride.phase(), RolloutPhase::Paused { why: PauseReason::NoProgress { since } });
    // A resume starts the deadline again.
    assert!(ride.say(&RolloutCommand::Resume).unwrap());
    ride.go();
    assert_eq!(
        (ride.phase(), ride.look().recheck),
        (RolloutPhase::Running, Some(ride.world.now + deadlines().progress))
    );
}

#[test]
fn at_once_waits_for_provisioning() {
    let mut ride = begin(1);
    ride.world.unmade("web1");
    ride.after(deadlines().progress);
    assert_eq!((ride.phase(), ride.look().recheck), (RolloutPhase::Running, None));
    assert_eq!(progress_of(&ride).holds, [Hold::Machine { node: node("web1") }]);
    assert_eq!(why(&ride, "web1"), Some(Hold::Machine { node: node("web1") }));
}

/// The state of each node, one line per wave, and the reasons why the rollout waits.
fn describe(ride: &Ride) -> String {
    let Progress { waves, holds } = progress_of(ride);
    let mut lines: Vec<String> = waves
        .iter()
        .map(|wave| {
            let nodes: Vec<String> =
                wave.nodes.iter().map(|node| format!("{} {}", node.node, node.state.word())).collect();
            nodes.join(", ")
        })
        .collect();
    lines.extend(holds.iter().map(|hold| format!("- {hold}")));
    lines.join("\n")
}

#[test]
fn progress_lists_every_node_and_reason() {
    let mut strategy = Strategy { soak: seconds(10), ..percents(&[25, 100]) };
    strategy.waves[0].soak = Some(minutes(5));
    strategy.waves[0].promote = Promote::Manual;
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 4, "a b")]), strategy);
    let mut book = String::new();
    let mut page = |title: &str, ride: &Ride| book += &format!("{title}:\n{}\n\n", describe(ride));
    ride.go();
    page("one is granted", &ride);
    let first = ride.granted[0].clone();
    ride.well(&first);
    page("it has answered", &ride);
    ride.after(seconds(10));
    page("the wave is watched", &ride);
    ride.after(minutes(5));
    page("a person is waited for", &ride);
    ride.say(&RolloutCommand::Promote { full: false }).unwrap();
    let second = ride.go();
    let names = ["web1", "web2", "web3", "web4"];
    let waits = names.iter().find(|name| **name != first && **name != second[0]).unwrap();
    ride.world.remove(waits);
    ride.world.node("web9", "web", "a", &[]);
    ride.world.answers("web9", RunEnd::Validated);
    ride.answers(&second[0], failed());
    page("the next has failed, another has left, and one has joined", &ride);
    insta::assert_snapshot!(book);
}

#[test]
fn progress_of_an_at_once_rollout() {
    let mut world = FakeFleet::new();
    ["web1", "web2", "web3"].iter().for_each(|name| world.node(name, "web", "a", &[]));
    let mut ride = Ride::of(world, &request("v1", budget(1, None)));
    ride.answers("web1", RunEnd::Validated);
    ride.answers("web2", failed());
    insta::assert_snapshot!(describe(&ride));
    assert!(matches!(ride.say(&RolloutCommand::Skip { node: node("web2") }), Err(CommandRefused::AtOnce { .. })));
}

#[test]
fn nodes_are_counted_by_role() {
    let mut ride = Ride::begin(FakeFleet::of(&[("web", 2, "a b"), ("db", 1, "a")]), budget(1, None));
    ride.go();
    let counts = progress_of(&ride).waves[0].counts();
    let web = NodeCounts { nodes: 2, waiting: 1, granted: 1, ..NodeCounts::default() };
    assert_eq!(
        counts.values().copied().collect::<Vec<_>>(),
        [NodeCounts { nodes: 1, granted: 1, ..NodeCounts::default() }, web]
    );
}
