//! Progress of rollouts, and the end of at-once rollouts by the same rules.

use muster_core::rollout::progress::{Hold, NodeCounts, Progress, RolloutNodeState};
use muster_core::rollout::record::{FailureKind, PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{Deadlines, Promote, Strategy};

use crate::command::{CommandRefused, RolloutCommand};
use crate::progress::{hold_reason, progress};
use crate::testing::{FakeFleet, RunEnd, node, request};

use super::RolloutHarness;
use super::harness::{budget, failed, minutes, pending, percents, seconds};

fn start(nodes: u32) -> RolloutHarness {
    let mut world = FakeFleet::new();
    for number in 1..=nodes {
        world.node(&format!("web{number}"), "web", "a", &[]);
    }
    RolloutHarness::with_request(world, &request("v1", Strategy::default()))
}

fn deadlines() -> Deadlines {
    Strategy::default().deadlines
}

fn progress_of(harness: &RolloutHarness) -> Progress {
    harness.world.with_input(|input| progress(&harness.plan, &harness.record(), input))
}

fn state(harness: &RolloutHarness, name: &str) -> RolloutNodeState {
    let mut nodes = progress_of(harness).waves.into_iter().flat_map(|wave| wave.nodes);
    nodes.find(|progress| progress.node == node(name)).unwrap().state
}

fn hold_of(harness: &RolloutHarness, name: &str) -> Option<Hold> {
    harness.world.with_input(|input| hold_reason(&harness.plan, &harness.record(), input, &node(name)))
}

/// Failures that count, by the progress.
fn failures(harness: &RolloutHarness) -> usize {
    let nodes = progress_of(harness).waves.into_iter().flat_map(|wave| wave.nodes);
    nodes.filter(|node| matches!(node.state, RolloutNodeState::Failed { forgiven: false, .. })).count()
}

#[test]
fn progress_shows_the_halt_reason() {
    let mut harness = start(4);
    harness.validate("web1");
    harness.report("web2", failed());
    harness.report("web4", pending());
    // A node joins, and is waited for too.
    harness.world.node("web5", "web", "a", &[]);
    let until = harness.world.now + deadlines().node;
    let on_its_way = Hold::Node { node: node("web3"), state: RolloutNodeState::Granted, deadline: Some(until) };
    assert_eq!(hold_of(&harness, "web3"), Some(on_its_way.clone()));
    assert!(progress_of(&harness).holds.contains(&on_its_way));
    assert_eq!(hold_of(&harness, "web1"), None);
    harness.advance(deadlines().node);
    assert!(matches!(
        state(&harness, "web3"),
        RolloutNodeState::Failed { how: FailureKind::Expired, forgiven: false, .. }
    ));
    assert!(matches!(state(&harness, "web4"), RolloutNodeState::Pending { .. }), "pending is no failure");
    harness.advance(deadlines().progress - deadlines().node);
    let RolloutPhase::Paused { why: PauseReason::Failures { failed, .. } } = harness.phase() else {
        panic!("{:?}", harness.phase())
    };
    assert_eq!((failed, failures(&harness)), (4, 4));
    harness.world.pass(seconds(1));
    assert_eq!(failures(&harness), 4, "a pause extends no deadline");
    // All have their full time again, and reviewed failures do not count.
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    harness.settle();
    assert_eq!((state(&harness, "web3"), failures(&harness)), (RolloutNodeState::Granted, 0));
    assert!(matches!(state(&harness, "web2"), RolloutNodeState::Failed { forgiven: true, .. }));
}

#[test]
fn node_of_cron_has_its_interval_to_answer() {
    for at_once in [false, true] {
        let every = minutes(30);
        let mut harness = if at_once {
            let mut harness = start(2);
            harness.world.cron("web2", every);
            harness
        } else {
            let mut world = FakeFleet::with_roles(&[("web", 2, "a b")]);
            world.cron("web2", every);
            RolloutHarness::start(world, budget(2, None))
        };
        harness.settle();
        harness.validate("web1");
        harness.advance(deadlines().node + minutes(1));
        assert_eq!(harness.phase(), RolloutPhase::Running, "at once: {at_once}");
        assert_eq!(state(&harness, "web2"), RolloutNodeState::Granted);
        assert!(matches!(hold_of(&harness, "web2"), Some(Hold::NotDue { .. })), "{:?}", hold_of(&harness, "web2"));
        // It calls in time.
        harness.validate("web2");
        harness.settle();
        assert_eq!(harness.phase(), RolloutPhase::Completed, "at once: {at_once}");
    }
}

#[test]
fn node_of_cron_that_never_calls_fails() {
    let mut world = FakeFleet::with_roles(&[("web", 2, "a b")]);
    world.cron("web2", minutes(30));
    let mut harness = RolloutHarness::start(world, budget(2, None));
    harness.settle();
    harness.validate("web1");
    harness.advance(deadlines().node + minutes(61));
    let expected = |state| matches!(state, RolloutNodeState::Failed { how: FailureKind::Unreachable, .. });
    assert!(expected(state(&harness, "web2")), "{:?}", state(&harness, "web2"));
}

#[test]
fn at_once_without_connected_nodes_pauses() {
    let mut harness = start(2);
    harness.report("web1", failed());
    harness.report("web2", failed());
    ["web1", "web2"].iter().for_each(|name| harness.world.silent(name, seconds(0)));
    harness.advance(deadlines().pending);
    let since = harness.world.now - deadlines().pending;
    assert_eq!(harness.phase(), RolloutPhase::Running);
    assert_eq!(hold_of(&harness, "web1"), Some(Hold::Silent { node: node("web1"), since }));
    assert_eq!(progress_of(&harness).holds.len(), 2, "it waits for no other node");
    let again = harness.decide().recheck.expect("a recheck time");
    harness.world.now = again;
    harness.settle();
    assert_eq!(harness.phase(), RolloutPhase::Paused { why: PauseReason::NoProgress { since } });
    // A resume starts the deadline again.
    assert!(harness.command(&RolloutCommand::Resume).unwrap());
    harness.settle();
    assert_eq!(
        (harness.phase(), harness.decide().recheck),
        (RolloutPhase::Running, Some(harness.world.now + deadlines().progress))
    );
}

#[test]
fn at_once_waits_for_provisioning() {
    let mut harness = start(1);
    harness.world.unmade("web1");
    harness.advance(deadlines().progress);
    assert_eq!((harness.phase(), harness.decide().recheck), (RolloutPhase::Running, None));
    assert_eq!(progress_of(&harness).holds, [Hold::Machine { node: node("web1") }]);
    assert_eq!(hold_of(&harness, "web1"), Some(Hold::Machine { node: node("web1") }));
}

/// The state of each node, one line per wave, and the reasons why the rollout waits.
fn describe(harness: &RolloutHarness) -> String {
    let Progress { waves, holds } = progress_of(harness);
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
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 4, "a b")]), strategy);
    let mut pages = String::new();
    let mut page = |title: &str, harness: &RolloutHarness| pages += &format!("{title}:\n{}\n\n", describe(harness));
    harness.settle();
    page("one node is granted", &harness);
    let first = harness.granted[0].clone();
    harness.validate(&first);
    page("it has reported", &harness);
    harness.advance(seconds(10));
    page("the wave soaks", &harness);
    harness.advance(minutes(5));
    page("it waits for an operator", &harness);
    harness.command(&RolloutCommand::Promote { full: false }).unwrap();
    let second = harness.settle();
    let names = ["web1", "web2", "web3", "web4"];
    let waits = names.iter().find(|name| **name != first && **name != second[0]).unwrap();
    harness.world.remove(waits);
    harness.world.node("web9", "web", "a", &[]);
    harness.world.answers("web9", RunEnd::Validated);
    harness.report(&second[0], failed());
    page("the next has failed, another has left, and one has joined", &harness);
    insta::assert_snapshot!(pages);
}

#[test]
fn progress_of_an_at_once_rollout() {
    let mut world = FakeFleet::new();
    ["web1", "web2", "web3"].iter().for_each(|name| world.node(name, "web", "a", &[]));
    let mut harness = RolloutHarness::with_request(world, &request("v1", budget(1, None)));
    harness.report("web1", RunEnd::Validated);
    harness.report("web2", failed());
    insta::assert_snapshot!(describe(&harness));
    assert!(matches!(
        harness.command(&RolloutCommand::Skip { node: node("web2") }),
        Err(CommandRefused::AtOnce { .. })
    ));
}

#[test]
fn nodes_are_counted_by_role() {
    let mut harness =
        RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b"), ("db", 1, "a")]), budget(1, None));
    harness.settle();
    let counts = progress_of(&harness).waves[0].counts();
    let web = NodeCounts { nodes: 2, waiting: 1, granted: 1, ..NodeCounts::default() };
    assert_eq!(
        counts.values().copied().collect::<Vec<_>>(),
        [NodeCounts { nodes: 1, granted: 1, ..NodeCounts::default() }, web]
    );
}
