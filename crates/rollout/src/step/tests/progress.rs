//! Progress of a running rollout.

use muster_core::rollout::progress::{NodeCounts, Progress};
use muster_core::rollout::strategy::{Promote, Strategy};

use crate::command::{CommandRefused, RolloutCommand};
use crate::progress::progress;
use crate::testing::{FakeFleet, RunEnd, node, request};

use super::Ride;
use super::ride::{budget, failed, minutes, percents, seconds};

fn told(ride: &Ride) -> Progress {
    let record = ride.record();
    ride.world.with_input(|input| progress(&ride.plan, &record, input))
}

/// The state of each node, one line per wave, and the reasons why the rollout waits.
fn describe(ride: &Ride) -> String {
    let Progress { waves, holds } = told(ride);
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
    let counts = told(&ride).waves[0].counts();
    let web = NodeCounts { nodes: 2, waiting: 1, granted: 1, ..NodeCounts::default() };
    assert_eq!(
        counts.values().copied().collect::<Vec<_>>(),
        [NodeCounts { nodes: 1, granted: 1, ..NodeCounts::default() }, web]
    );
}
