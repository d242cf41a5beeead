//! Retries: only nodes that a step counts as failed can be retried.

use muster_core::rollout::progress::RolloutNodeState;
use muster_core::rollout::record::{FailureKind, PauseReason, RolloutPhase};
use muster_core::rollout::strategy::{Amount, Deadlines, FailureLimits, Gate, MaxUnavailable, Strategy};

use crate::command::{CommandRefused, RetryTarget, RolloutCommand};
use crate::progress::progress;
use crate::testing::{FakeFleet, RunEnd, node};

use super::RolloutHarness;
use super::harness::{budget, failed, invalid, minutes, pending, percents, seconds};

fn retry_all() -> RolloutCommand {
    RolloutCommand::Retry(RetryTarget::AllFailed)
}

fn retry(names: &[&str]) -> RolloutCommand {
    RolloutCommand::Retry(RetryTarget::Nodes(names.iter().map(|name| node(name)).collect()))
}

/// The nodes that stopped the rollout, and how they failed.
fn stopped_by(harness: &RolloutHarness) -> Vec<(String, FailureKind)> {
    let RolloutPhase::Paused { why: PauseReason::Failures { nodes, .. } } = harness.phase() else {
        panic!("{:?}", harness.phase())
    };
    nodes.iter().map(|failed| (failed.node.to_string(), failed.how)).collect()
}

fn state(harness: &RolloutHarness, name: &str) -> RolloutNodeState {
    let progress = harness.world.with_input(|input| progress(&harness.plan, &harness.record(), input));
    let mut nodes = progress.waves.into_iter().flat_map(|wave| wave.nodes);
    nodes.find(|progress| progress.node == node(name)).unwrap().state
}

/// Four nodes in two waves: one of the first wave disconnects before its turn. Returns its name.
fn silent_before_its_turn() -> (RolloutHarness, String) {
    let max_unavailable = MaxUnavailable { default: Amount::Nodes(2), ..MaxUnavailable::default() };
    let strategy = Strategy { max_unavailable, ..percents(&[50, 100]) };
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 4, "a b")]), strategy);
    let silent = harness.plan.plan().waves[0].nodes[1].node.to_string();
    harness.world.silent(&silent, seconds(0));
    let first = harness.settle();
    assert_eq!(first.len(), 1);
    harness.validate(&first[0]);
    harness.advance(minutes(30));
    assert_eq!(stopped_by(&harness), [(silent.clone(), FailureKind::Unreachable)]);
    (harness, silent)
}

#[test]
fn retried_disconnected_node_blocks_no_other() {
    for by_name in [false, true] {
        let (mut harness, silent) = silent_before_its_turn();
        let word = if by_name { retry(&[&silent]) } else { retry_all() };
        assert!(harness.command(&word).unwrap());
        assert_eq!(harness.settle().len(), 1, "the next wave starts");
        assert_eq!(harness.phase(), RolloutPhase::Running);
        assert!(matches!(state(&harness, &silent), RolloutNodeState::Failed { forgiven: true, .. }));
        assert!(!harness.command(&word).unwrap(), "the second command is a no-op");
        // It is back, and is granted; its failures count again.
        harness.world.connected(&silent);
        let other = harness.granted.last().unwrap().clone();
        assert!(harness.validate(&other).contains(&silent));
        assert!(harness.record().operator.retry.is_empty());
        harness.report(&silent, failed());
        assert_eq!(stopped_by(&harness), [(silent, FailureKind::NotConfigured)]);
    }
}

#[test]
fn retry_of_one_node_excuses_no_other() {
    let none = Amount::Nodes(0);
    let failures = FailureLimits { canary: none, wave: none, total: none };
    let mut harness =
        RolloutHarness::start(FakeFleet::with_roles(&[("web", 3, "a b")]), Strategy { failures, ..budget(2, None) });
    let granted = harness.settle();
    let silent = ["web1", "web2", "web3"].into_iter().find(|name| !granted.iter().any(|other| other == name)).unwrap();
    harness.world.silent(silent, seconds(0));
    harness.world.answers(&granted[0], failed());
    harness.validate(&granted[1]);
    harness.world.pass(minutes(30));
    assert!(harness.command(&retry(&[silent])).unwrap(), "it has failed too, but below the limit");
    harness.settle();
    assert_eq!(stopped_by(&harness), [(granted[0].clone(), FailureKind::NotConfigured)]);
}

#[test]
fn retry_of_healthy_disconnected_node() {
    let mut harness = RolloutHarness::start(
        FakeFleet::with_roles(&[("web", 2, "a b")]),
        Strategy { soak: seconds(10), ..budget(1, None) },
    );
    let first = harness.settle();
    harness.world.answers(&first[0], RunEnd::Validated);
    harness.world.silent(&first[0], seconds(0));
    harness.settle();
    let other = if first[0] == "web1" { "web2" } else { "web1" };
    harness.world.silent(other, seconds(0));
    harness.advance(minutes(30));
    let mut stopped = stopped_by(&harness);
    stopped.sort_by(|(one, _), (other, _)| one.cmp(other));
    assert_eq!(stopped, [("web1".into(), FailureKind::Unreachable), ("web2".into(), FailureKind::Unreachable)]);
    assert!(harness.command(&retry_all()).unwrap());
    harness.settle();
    assert!(
        !matches!(harness.phase(), RolloutPhase::Paused { why: PauseReason::Failures { .. } }),
        "{:?}",
        harness.phase()
    );
}

#[test]
fn pending_deadline_fails_before_the_grant_expires() {
    let deadlines = Deadlines { pending: minutes(5), ..Deadlines::default() };
    let mut harness =
        RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), Strategy { deadlines, ..budget(1, None) });
    let first = harness.settle();
    harness.report(&first[0], pending());
    harness.advance(minutes(5));
    assert_eq!(stopped_by(&harness), [(first[0].clone(), FailureKind::PendingTooLong)]);
    assert!(harness.command(&retry(&[&first[0]])).unwrap());
    assert_eq!(harness.settle(), first);
}

#[test]
fn pending_node_outlives_its_grant() {
    let mut harness = RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), budget(1, None));
    let first = harness.settle();
    harness.report(&first[0], pending());
    harness.advance(minutes(20));
    assert!(matches!(state(&harness, &first[0]), RolloutNodeState::Pending { .. }));
    let refused = harness.command(&retry_all()).unwrap_err();
    assert!(matches!(refused, CommandRefused::NoFailedNode { .. }), "{refused}");
    let refused = harness.command(&retry(&[&first[0]])).unwrap_err();
    assert!(refused.to_string().ends_with("it waits for other nodes"), "{refused}");
}

#[test]
fn gate_without_validation_ignores_failed_checks() {
    let gate = Gate { validated: false, ..Gate::default() };
    let mut harness =
        RolloutHarness::start(FakeFleet::with_roles(&[("web", 2, "a b")]), Strategy { gate, ..budget(1, None) });
    let first = harness.settle();
    let next = harness.report(&first[0], invalid());
    assert_eq!((next.len(), state(&harness, &first[0])), (1, RolloutNodeState::Healthy));
    let refused = harness.command(&retry_all()).unwrap_err();
    assert!(matches!(refused, CommandRefused::NoFailedNode { .. }), "{refused}");
}
